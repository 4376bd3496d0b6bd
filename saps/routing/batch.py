"""The unit of publications that passes through a broker.

Every station takes a `Batch`: the frontend cuts one out of each read, the hub hands it to subscribers and to the mesh,
the mesh carries it in one frame, a session queues it, the encoder writes it. A single message is a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from saps.messages import Message, Properties

MOST = 512
"""Most publications in one batch. More would save nothing; with fewer the first of them arrives sooner."""


class Form(NamedTuple):
    """The fields in which the copies of a publication for its subscribers can differ (MQTT 5.0, 3.3)."""

    qos: int
    retain: bool
    identifiers: tuple[int, ...]


_FORMS = [Form(qos, retain, ()) for qos in (0, 1, 2) for retain in (False, True)]


def form(qos: int, retain: bool, identifiers: tuple[int, ...] = ()) -> Form:
    """Return the form with these values; without subscription identifiers it is always the same object."""
    return Form(qos, retain, identifiers) if identifiers else _FORMS[qos << 1 | retain]


class Share(NamedTuple):
    """The shared subscription for which one of its members gets a publication."""

    topic_filter: str
    """``$share/group/filter``."""
    settled: Callable[[], None]
    """Must be called when the member has the message, or when the message is lost."""


class Publisher(Protocol):
    """The incarnation of the broker at which something was published."""

    @property
    def name(self) -> str: ...

    @property
    def incarnation(self) -> int: ...


UNNUMBERED = 1 << 62
"""A number above all sequence numbers that the mesh assigns."""


class Origin(NamedTuple):
    """The identity of a publication in the whole mesh."""

    broker: str
    incarnation: int
    seq: int


_ALONE = (0,)


class Batch:
    """Consecutive publications of one publisher: one QoS, one retain flag, any topics, any properties.

    All receivers share the batch, so its publications must not change. `encoded` is the encoder's cache: subscribers
    with the same protocol version and `Form` share their packets. The cutter may seed it with the packets that it cut
    the batch from.
    """

    __slots__ = (
        "_payloads",
        "_singles",
        "_source",
        "deadlines",
        "encoded",
        "properties",
        "publisher",
        "qos",
        "replayed",
        "retain",
        "seqs",
        "share",
        "topics",
        "which",
    )

    def __init__(
        self,
        topics: list[str],
        which: Sequence[int],
        payloads: list[bytes] | None,
        qos: int = 0,
        retain: bool = False,
        properties: Sequence[Properties | None] | None = None,
        source: tuple[bytes, list[int], list[int]] | None = None,
    ) -> None:
        """If `payloads` is None they are cut out of `source` (bytes, start of each, end of each) when first needed."""
        self.topics = topics
        """Each topic once, in the order of its first publication."""
        self.which = which
        """For each publication the index of its topic in `topics`."""
        self.qos = qos
        self.retain = retain
        self.properties = properties
        """The properties of each publication; None if no publication has any."""
        self.deadlines: list[float | None] | None = None
        """When each publication expires, in seconds on the hub's clock; None: never (`set_deadlines`)."""
        self.publisher: Publisher | None = None
        """Where it was published; None before it is given to the mesh."""
        self.seqs: Sequence[int] = ()
        """The sequence number of each publication at its broker; 0: none."""
        self.share: Share | None = None
        """Set if the batch is for one member of a shared subscription."""
        self.replayed = False
        """Whether it is sent because of a new subscription, and was not published just now."""
        self.encoded: dict[Any, Any] = {}
        self._payloads = payloads
        self._source = source
        self._singles: list[Batch] | None = None

    @classmethod
    def of(cls, message: Message) -> Batch:
        """Return a batch of one message."""
        properties = message.properties
        return cls(
            [message.topic],
            _ALONE,
            [message.payload],
            message.qos,
            message.retain,
            None if properties is None else [properties],
        )

    def __len__(self) -> int:
        return len(self.which)

    @property
    def payloads(self) -> list[bytes]:
        """The payload of each publication."""
        payloads = self._payloads
        if payloads is None:
            assert self._source is not None
            data, starts, ends = self._source
            payloads = self._payloads = [data[start : ends[index]] for index, start in enumerate(starts)]
            self._source = None  # it may be much larger than what is left of it
        return payloads

    @property
    def sizes(self) -> list[int]:
        """The size of each payload in bytes."""
        if self._source is None:
            return list(map(len, self.payloads))
        _, starts, ends = self._source
        return [end - start for start, end in zip(starts, ends, strict=True)]

    @property
    def size(self) -> int:
        """The sum of the payloads' sizes in bytes."""
        return sum(self.sizes)

    @property
    def totals(self) -> list[tuple[int, int]]:
        """For each topic the number of its publications and the bytes of their payloads."""
        if len(self.topics) == 1:
            return [(len(self.which), self.size)]
        counts, sizes = [0] * len(self.topics), [0] * len(self.topics)
        for number, size in zip(self.which, self.sizes, strict=True):
            counts[number] += 1
            sizes[number] += size
        return list(zip(counts, sizes, strict=True))

    # ---- parts

    def select(self, indexes: Sequence[int]) -> Batch:
        """Return the publications at these ascending indexes as a batch; this batch itself if those are all."""
        count = len(self.which)
        if len(indexes) == count:
            return self
        places: dict[int, int] = {}
        which = [places.setdefault(self.which[index], len(places)) for index in indexes]
        payloads, properties, deadlines = self.payloads, self.properties, self.deadlines
        part = Batch(
            [self.topics[number] for number in places],
            which,
            [payloads[index] for index in indexes],
            self.qos,
            self.retain,
            None if properties is None else [properties[index] for index in indexes],
        )
        part.share, part.replayed, part.publisher = self.share, self.replayed, self.publisher
        if deadlines is not None:
            part.deadlines = [deadlines[index] for index in indexes]
        if self.seqs:
            part.seqs = [self.seqs[index] for index in indexes]
        if self._singles is not None:
            part._singles = [self._singles[index] for index in indexes]
        return part

    def divide(self, groups: Sequence[Sequence[int]]) -> list[Batch]:
        """Return a batch for each group of topics, given by indexes into `topics`, with the publications to them."""
        places: list[list[int]] = [[] for _ in groups]
        of_topic = {number: found for group, found in zip(groups, places, strict=True) for number in group}
        for index, number in enumerate(self.which):
            if number in of_topic:
                of_topic[number].append(index)
        return [self.select(found) for found in places]

    @property
    def singles(self) -> list[Batch]:
        """Each publication as a batch of one. They are always the same objects, and do not keep this batch alive."""
        payloads = self.payloads
        if len(payloads) == 1:
            return [self]  # not cached: the batch would refer to itself
        singles = self._singles
        if singles is None:
            alone = [[topic] for topic in self.topics]
            singles = self._singles = [self._single(index, alone[number]) for index, number in enumerate(self.which)]
        return singles

    def _single(self, index: int, topics: list[str]) -> Batch:
        properties = self.properties
        single = Batch(
            topics,
            _ALONE,
            [self.payloads[index]],
            self.qos,
            self.retain,
            None if properties is None else [properties[index]],
        )
        if self.deadlines is not None:
            single.deadlines = [self.deadlines[index]]
        if self.seqs:
            single.publisher, single.seqs = self.publisher, (self.seqs[index],)
        return single

    def copies(self, form: Form) -> list[tuple[Batch, Form]]:
        """Return each publication as a batch of one with a form; all subscribers with that form share the objects."""
        if len(self.which) == 1:
            return [(self, form)]
        copies: list[tuple[Batch, Form]] | None = self.encoded.get(form)
        if copies is None:
            copies = self.encoded[form] = [(single, form) for single in self.singles]
        return copies

    # ---- a batch of one

    @property
    def topic(self) -> str:
        """The topic of a batch of one."""
        return self.topics[0]

    @property
    def payload(self) -> bytes:
        """The payload of a batch of one."""
        return self.payloads[0]

    @property
    def deadline(self) -> float | None:
        """When a batch of one expires, in seconds on the hub's clock; None: never."""
        return None if self.deadlines is None else self.deadlines[0]

    def expired(self, now: float) -> bool:
        """Return whether a batch of one has expired at `now`, in seconds on the hub's clock."""
        return self.deadlines is not None and (deadline := self.deadlines[0]) is not None and deadline <= now

    @property
    def message(self) -> Message:
        """The message of a batch of one."""
        properties = None if self.properties is None else self.properties[0]
        return Message(self.topics[0], self.payloads[0], self.qos, self.retain, properties)

    @property
    def origin(self) -> Origin | None:
        """The identity of a batch of one in the mesh; None before it is given to the mesh."""
        if self.publisher is None or not self.seqs or not self.seqs[0]:
            return None
        return Origin(self.publisher.name, self.publisher.incarnation, self.seqs[0])

    def for_member(self, share: Share) -> Batch:
        """Return a copy of this batch of one for a member of a shared subscription."""
        taken = Batch(self.topics, self.which, self.payloads, self.qos, self.retain, self.properties)
        taken.deadlines, taken.publisher, taken.seqs, taken.share = self.deadlines, self.publisher, self.seqs, share
        return taken

    # ---- what stations add

    @property
    def messages(self) -> list[Message]:
        """Each publication as a message."""
        topics, qos, retain = self.topics, self.qos, self.retain
        properties = self.properties or [None] * len(self.which)
        return [
            Message(topics[number], payload, qos, retain, each)
            for number, payload, each in zip(self.which, self.payloads, properties, strict=True)
        ]

    def set_deadlines(self, now: float) -> None:
        """Start the lifetimes of the publications at their arrival at this broker `now` (3.3.2.3.3)."""
        if self.properties is None:
            return
        lifetimes = [None if each is None else each.message_expiry for each in self.properties]
        if any(lifetime is not None for lifetime in lifetimes):
            self.deadlines = [None if lifetime is None else now + lifetime for lifetime in lifetimes]

    def number(self, publisher: Publisher, seqs: Sequence[int]) -> None:
        """Set the broker and the sequence number of each publication; 0: none."""
        self.publisher, self.seqs = publisher, seqs
        for single, seq in zip(self._singles or (), seqs, strict=False):
            single.publisher, single.seqs = publisher, (seq,)

    def replace(self, properties: Sequence[Properties | None]) -> Batch:
        """Return the same publications with other properties."""
        return Batch(self.topics, self.which, self.payloads, self.qos, self.retain, properties)
