"""Publications on their way through a broker.

Every station takes a `Batch`: the frontend cuts one out of each read, the hub hands it to subscribers and to the mesh,
the mesh carries it in one frame, a session queues it, the encoder writes it. A single message is a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from saps.messages import Message, Properties

MOST = 512
"""Publications in one batch, at most. More would save nothing; fewer let the first of them arrive sooner."""


class Form(NamedTuple):
    """What can differ between the copies of a publication that its subscribers get (MQTT 5.0, section 3.3)."""

    qos: int
    retain: bool
    identifiers: tuple[int, ...]


_FORMS = [Form(qos, retain, ()) for qos in (0, 1, 2) for retain in (False, True)]


def form(qos: int, retain: bool, identifiers: tuple[int, ...] = ()) -> Form:
    """The form with these values; the same object for all without identifiers."""
    return Form(qos, retain, identifiers) if identifiers else _FORMS[qos << 1 | retain]


class Share(NamedTuple):
    """Why one member of a shared subscription gets a publication."""

    topic_filter: str
    """``$share/group/filter``."""
    settled: Callable[[], None]
    """To be called when the member has the message, or it is lost."""


class Publisher(Protocol):
    """The life of the broker at which something was published."""

    @property
    def name(self) -> str: ...

    @property
    def incarnation(self) -> int: ...


class Origin(NamedTuple):
    """A publication's name in the whole mesh."""

    broker: str
    incarnation: int
    seq: int


_ALONE = (0,)


class Batch:
    """Publications of one publisher that follow each other: one QoS, one retain flag, any topics, any properties.

    Shared by all who get it: nobody changes the publications. `encoded` is the encoder's cache, kept with the batch so
    that subscribers with the same protocol version and `Form` share their packets; whoever cuts the batch out of
    packets may seed it with these.
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
        """`payloads` None: they are cut out of `source` (bytes, where each begins, where each ends) when needed."""
        self.topics = topics
        """Each once, in the order of its first publication."""
        self.which = which
        """Of each publication, the place of its topic in `topics`."""
        self.qos = qos
        self.retain = retain
        self.properties = properties
        """Of each publication; None: none has any."""
        self.deadlines: list[float | None] | None = None
        """When it is too late to deliver each, in seconds on the hub's clock; None: never (`set_deadlines`)."""
        self.publisher: Publisher | None = None
        """Where it was published; None: it has not been given to the mesh."""
        self.seqs: Sequence[int] = ()
        """The sequence number of each publication at its broker; 0: none."""
        self.share: Share | None = None
        """It is for one member of a shared subscription."""
        self.replayed = False
        """It is sent because of a new subscription, not because it was published just now."""
        self.encoded: dict[Any, Any] = {}
        self._payloads = payloads
        self._source = source
        self._singles: list[Batch] | None = None

    @classmethod
    def of(cls, message: Message) -> Batch:
        """A batch of this message alone."""
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
        """Of each publication."""
        payloads = self._payloads
        if payloads is None:
            assert self._source is not None
            data, starts, ends = self._source
            payloads = self._payloads = [data[start : ends[index]] for index, start in enumerate(starts)]
            self._source = None  # it may be much larger than what is left of it
        return payloads

    @property
    def sizes(self) -> list[int]:
        """Bytes of each payload."""
        if self._source is None:
            return list(map(len, self.payloads))
        _, starts, ends = self._source
        return [end - start for start, end in zip(starts, ends, strict=True)]

    @property
    def size(self) -> int:
        """Bytes of all payloads."""
        return sum(self.sizes)

    @property
    def totals(self) -> list[tuple[int, int]]:
        """Of each topic: publications, and bytes of their payloads."""
        if len(self.topics) == 1:
            return [(len(self.which), self.size)]
        counts, sizes = [0] * len(self.topics), [0] * len(self.topics)
        for number, size in zip(self.which, self.sizes, strict=True):
            counts[number] += 1
            sizes[number] += size
        return list(zip(counts, sizes, strict=True))

    # ---- parts

    def select(self, indexes: Sequence[int]) -> Batch:
        """The publications at these places, ascending, as a batch; this one if that is all of them."""
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
        """For each group of topics, by their places in `topics`, the publications to them as a batch."""
        places: list[list[int]] = [[] for _ in groups]
        of_topic = {number: found for group, found in zip(groups, places, strict=True) for number in group}
        for index, number in enumerate(self.which):
            if number in of_topic:
                of_topic[number].append(index)
        return [self.select(found) for found in places]

    @property
    def singles(self) -> list[Batch]:
        """Each publication as a batch of one: always the same objects, which keep nothing else of this batch."""
        payloads = self.payloads
        if len(payloads) == 1:
            return [self]  # not kept: it would keep itself
        singles = self._singles
        if singles is None:
            singles = self._singles = [self._single(index) for index in range(len(payloads))]
        return singles

    def _single(self, index: int) -> Batch:
        properties = self.properties
        single = Batch(
            [self.topics[self.which[index]]],
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
        """Each publication as a batch of one, in a form: the same objects for all subscribers that get it so."""
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
        """When it is too late to deliver a batch of one; None: never."""
        return None if self.deadlines is None else self.deadlines[0]

    @property
    def message(self) -> Message:
        """The message of a batch of one."""
        return self.messages[0]

    @property
    def origin(self) -> Origin | None:
        """Which publication a batch of one is; None if it has not been given to the mesh."""
        if self.publisher is None or not self.seqs or not self.seqs[0]:
            return None
        return Origin(self.publisher.name, self.publisher.incarnation, self.seqs[0])

    def for_member(self, share: Share) -> Batch:
        """This batch of one, for a member of a shared subscription."""
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
        """It has arrived at this broker `now`: the lifetimes of its publications begin (3.3.2.3.3)."""
        if self.properties is None:
            return
        lifetimes = [None if each is None else each.message_expiry for each in self.properties]
        if any(lifetime is not None for lifetime in lifetimes):
            self.deadlines = [None if lifetime is None else now + lifetime for lifetime in lifetimes]

    def number(self, publisher: Publisher, seqs: Sequence[int]) -> None:
        """The broker gives each publication a sequence number; 0: none."""
        self.publisher, self.seqs = publisher, seqs
        for single, seq in zip(self._singles or (), seqs, strict=False):
            single.publisher, single.seqs = publisher, (seq,)

    def replace(self, properties: Sequence[Properties | None]) -> Batch:
        """The same publications with other properties."""
        return Batch(self.topics, self.which, self.payloads, self.qos, self.retain, properties)
