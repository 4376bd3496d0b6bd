"""Runs, stretches and bundles: publications that follow each other in one turn of a broker's event loop leave as one
frame.

A run is to one topic. A stretch is to one or several, and of QoS 0: it goes as the packets that it came as. A bundle is
to several, and of QoS 1. They cost their senders, their receivers and those who answer for them little more than a
single publication, and are an economy of the way only: each message has its own sequence number, and they are at any
time as good as the publications they consist of (`singly`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from struct import pack, unpack

from saps import plain
from saps.overlay.frames import Bundle, Data, Frame, Part, ProtocolError, Run, Stretch
from saps.overlay.keys import BrokerRef
from saps.overlay.presence import Stream
from saps.plain import MOST_TOGETHER, Encoded

MOST_BYTES = 1 << 17
"""Payload in a run above which it is not continued: the receiver begins with a frame when all of it is there."""

Addressed = tuple[BrokerRef, Frame]


Several = Run | Stretch | Bundle
"""What carries several publications."""


def singly(data: Data | Several) -> list[Data]:
    """The publications in a frame, each by itself. Where it asks for an answer, so does each, by the tokens that follow
    the frame's. Raises `ProtocolError` if the packets of a stretch are not what it says."""
    if type(data) is Data:
        return [data]
    if type(data) is Stretch:
        return opened(data, encoded(data))
    if type(data) is Bundle:
        return _unbundled(data)
    assert type(data) is Run
    token = data.token
    return [
        Data(
            data.origin,
            data.seq + i,
            data.seq + i - 1 if i else data.prev,
            data.slice,
            token + 1 + i if token else 0,
            data.topic,
            payload,
            data.qos,
            retain=False,
        )
        for i, payload in enumerate(data.payloads)
    ]


def _unbundled(bundle: Bundle) -> list[Data]:
    topics = [bundle.parts[number].topic for number in bundle.which]
    return _numbered(bundle, zip(topics, bundle.payloads, strict=True), 1, bundle.token)


def _numbered(
    frame: Stretch | Bundle, publications: Iterable[tuple[str, bytes]], qos: int, token: int = 0
) -> list[Data]:
    """Those of a frame (topic, payload), each behind the one before to its topic, with the tokens that follow this."""
    before = {part.topic: (part.seq - 1, part.prev) for part in frame.parts}
    singles = []
    for topic, payload in publications:
        seq, prev = before[topic]
        before[topic] = seq + 1, seq + 1
        token += bool(token)
        singles.append(Data(frame.origin, seq + 1, prev, frame.slice, token, topic, payload, qos, retain=False))
    return singles


def check(bundle: Bundle) -> None:
    """Raises `ProtocolError` if it is not publications to its topics, to each at least one."""
    if len(bundle.which) != len(bundle.payloads) or set(bundle.which) != set(range(len(bundle.parts))):
        raise ProtocolError("a bundle whose publications are not those of its parts")
    if len({part.topic for part in bundle.parts}) != len(bundle.parts):
        raise ProtocolError("a bundle with two parts to one topic")


def opened(stretch: Stretch, found: Encoded) -> list[Data]:
    """The publications of a stretch, which have been `found` in it, each by itself."""
    return _numbered(stretch, ((run.topic, payload) for run in found.runs() for payload in run.payloads), 0)


def encoded(stretch: Stretch) -> Encoded:
    """The publications of a stretch. Raises `ProtocolError` if its packets are not what it says."""
    if len(stretch.sizes) % 2 or len(stretch.which) % 2:
        raise ProtocolError("a stretch of half a number")
    topics, sizes, which = [part.topic for part in stretch.parts], _numbers(stretch.sizes), _numbers(stretch.which)
    found = plain.encoded(stretch.level, stretch.packets, topics, sizes, which)
    if found is None:
        raise ProtocolError("a stretch whose packets are not the publications it names")
    return found


def stretch_of(found: Encoded, parts: list[Part]) -> Stretch:
    """The frame, with its numbers still to be set."""
    sizes, which = found.sizes, found.which or ()
    return Stretch(0, 0, found.version, parts, _packed(sizes), _packed(which), found.packets)


def _numbers(packed: bytes) -> tuple[int, ...]:
    return unpack(f">{len(packed) // 2}H", packed)


def _packed(numbers: Sequence[int]) -> bytes:
    return pack(f">{len(numbers)}H", *numbers)


def length(data: Data | Several) -> int:
    """How many publications it carries."""
    if isinstance(data, Stretch):
        return len(data.sizes) // 2
    return len(data.payloads) if isinstance(data, Run | Bundle) else 1


def topics(data: Data | Several) -> list[tuple[str, int]]:
    """The topics it is to, and how many publications are to each."""
    if isinstance(data, Stretch):
        numbers = Counter(_numbers(data.which)) if data.which else {0: length(data)}
    elif isinstance(data, Bundle):
        numbers = Counter(data.which)
    else:
        return [(data.topic, length(data))]
    return [(data.parts[number].topic, count) for number, count in numbers.items()]


def addressed(data: Data | Several, origin: int, run_number: int, token: int) -> Data | Several:
    """The same publication, or publications, with the numbers that hold on one link."""
    if type(data) is Stretch:
        return Stretch(origin, run_number, data.level, data.parts, data.sizes, data.which, data.packets)
    if type(data) is Bundle:
        return Bundle(origin, run_number, token, data.parts, data.which, data.payloads)
    if type(data) is Run:
        return Run(origin, data.seq, data.prev, run_number, token, data.topic, data.qos, data.payloads)
    assert type(data) is Data
    return Data(
        origin,
        data.seq,
        data.prev,
        run_number,
        token,
        data.topic,
        data.payload,
        data.qos,
        data.retain,
        data.properties,
    )


class OpenRun:
    """What was published last, for as long as its frames stand in the outbox: what follows may join it.

    The frames of all branches share the list of payloads, so that joining costs one `append`.
    """

    __slots__ = (
        "_first",
        "_last",
        "_members",
        "_outbox",
        "_payloads",
        "_qos",
        "_size",
        "copies",
        "crossing",
        "seq",
        "stream",
    )

    def __init__(self, stream: Stream, data: Data, outbox: list[Addressed], first: int) -> None:
        """The outbox ends with the frames of `data`, from `first` on, just published to the members of the stream."""
        self.stream = stream
        self.seq = data.seq
        self._members = stream.members
        self._outbox = outbox
        self._first, self._last = first, len(outbox)
        self._qos = data.qos
        self._payloads = [data.payload]
        self._size = len(data.payload)
        self.copies = 0
        """Frames that carry it, once it is a run."""
        self.crossing = 0
        """Those of them that go to other clusters."""

    @property
    def single(self) -> bool:
        """Nothing has joined it yet: `begin` comes first."""
        return not self.copies

    def takes(self, topic: str, qos: int, outbox: list[Addressed]) -> bool:
        """May plain messages join: are they of the kind, with the same members, and has nothing been sent yet?"""
        return (
            outbox is self._outbox
            and self.stream.topic == topic
            and self.stream.members is self._members
            and qos == self._qos
            and len(self._payloads) < MOST_TOGETHER
            and self._size < MOST_BYTES
        )

    def begin(self, cluster: str) -> list[tuple[int, Run]]:
        """Exchange the frames for runs. Returns these with the tokens that the frames had; their own must be set."""
        exchanged: list[tuple[int, Run]] = []
        for i in range(self._first, self._last):
            to, frame = self._outbox[i]
            if type(frame) is Data:
                run = Run(frame.origin, frame.seq, frame.prev, frame.slice, 0, frame.topic, frame.qos, self._payloads)
                self._outbox[i] = to, run
                self.crossing += to.cluster != cluster
                exchanged.append((frame.token, run))
        self.copies = len(exchanged)
        return exchanged

    def join(self, payloads: list[bytes]) -> int:
        """Let messages of the kind join, at least the first, as far as there is room. Returns how many have."""
        payloads = payloads[: MOST_TOGETHER - len(self._payloads)]
        size = self._size + sum(map(len, payloads))
        while size - len(payloads[-1]) >= MOST_BYTES and len(payloads) > 1:
            size -= len(payloads.pop())
        self._payloads += payloads
        self._size = size
        return len(payloads)
