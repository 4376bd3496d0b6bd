"""Runs: publications to one topic that follow each other in one turn of a broker's event loop leave as one frame.

A run costs its senders, its receivers and those who answer for it little more than a single publication. It is an
economy of the way only: each message has its own sequence number, and a run is at any time as good as the publications
it consists of (`singly`).
"""

from __future__ import annotations

from saps.overlay.frames import Data, Frame, Run
from saps.overlay.keys import BrokerRef
from saps.overlay.presence import Stream

MOST = 512
"""Publications in a run. More saves nothing; fewer let the first of them arrive sooner."""
MOST_BYTES = 1 << 17
"""Payload in a run above which it is not continued: the receiver begins with a frame when all of it is there."""

Addressed = tuple[BrokerRef, Frame]


def singly(data: Data | Run) -> list[Data]:
    """The publications of a run, each by itself. Where the run asks for an answer, so does each, by the tokens that
    follow the run's."""
    if type(data) is Data:
        return [data]
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


def length(data: Data | Run) -> int:
    """How many publications it carries."""
    return len(data.payloads) if type(data) is Run else 1


def addressed(data: Data | Run, origin: int, run_number: int, token: int) -> Data | Run:
    """The same publication, or publications, with the numbers that hold on one link."""
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
            and len(self._payloads) < MOST
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
        payloads = payloads[: MOST - len(self._payloads)]
        size = self._size + sum(map(len, payloads))
        while size - len(payloads[-1]) >= MOST_BYTES and len(payloads) > 1:
            size -= len(payloads.pop())
        self._payloads += payloads
        self._size = size
        return len(payloads)
