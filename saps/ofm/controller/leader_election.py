"""Which of two controllers is master: a machine in each of them, and the switches between both.

A switch obeys the controller with the highest *generation* it has heard of (OpenFlow 1.3.5, 6.3.6), so however wrong
the two are about each other, no switch has two masters. A generation is an election's number, then 32 bits that name
the candidate: two controllers never claim the same one.

    STANDBY -- the peer is silent, or yields -- `Claim` --> CLAIMING -- all switches grant it -- `Serve` --> MASTER
    CLAIMING -- a switch has heard of a later election --> STANDBY
    MASTER -- so has a switch, or the peer -- `Retire` --> STANDBY
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import msgspec

LONGEST = 60.0
"""Seconds of the peer's silence that are enough at any rate."""
HOLD = 1.0
"""Seconds, at most, that count of one stretch of time: who was held up itself has heard nothing meanwhile."""
_CANDIDATE = 32
"""Bits that name the candidate."""


class Post(StrEnum):
    """What a controller of a pair is."""

    STANDBY = "standby"
    """It follows the master, and answers no OFGate."""
    CLAIMING = "claiming"
    """It is asking the switches."""
    MASTER = "master"


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller tells about itself."""

    run: str
    """Names this run."""
    post: Post
    generation: int = 0
    """Its own as a master, else the highest it has heard of."""
    version: int = 0
    """Of the state it has: of two that are in touch, the greater is the later."""
    able: bool = False
    """It reaches enough switches to be master."""
    revision: int = 0
    """Counts what has happened to its state in this run."""


# -- events


@dataclass(frozen=True, slots=True)
class Heard:
    """The peer has said this."""

    word: Word


@dataclass(frozen=True, slots=True)
class Passed:
    """Seconds have passed. We reach enough switches, or not, and have a state of this version."""

    seconds: float
    able: bool
    version: int


@dataclass(frozen=True, slots=True)
class Granted:
    """All switches we reach have granted the claim."""

    generation: int


@dataclass(frozen=True, slots=True)
class Outbid:
    """A switch has heard of this generation."""

    generation: int


Event: TypeAlias = Heard | Passed | Granted | Outbid

# -- effects


@dataclass(frozen=True, slots=True)
class Claim:
    """Ask all switches to be their master; answer by `Granted` or `Outbid`."""

    generation: int


@dataclass(frozen=True, slots=True)
class Serve:
    """Take up the work of the controller, from the state that the peer had."""

    generation: int


@dataclass(frozen=True, slots=True)
class Retire:
    """Lay it down."""


Effect: TypeAlias = Claim | Serve | Retire


class Leadership:
    """The machine; `handle` is all that changes it."""

    def __init__(self, run: str, candidate: int, takeover: float) -> None:
        """`candidate`: 32 bits that no other controller has. `takeover`: seconds of silence after which the peer is
        taken for dead."""
        self.run = run
        self.post = Post.STANDBY
        self.generation = 0
        """Of our latest claim."""
        self.highest = 0
        """The highest heard of."""
        self.timeout = takeover
        """Seconds of silence that are enough now. They double with each election lost to a peer that is not heard, as
        two that reach the same switches and not each other would else depose each other for ever."""
        self._takeover = takeover
        self._candidate = candidate
        self._silence = 0.0
        self._alone = True
        """The peer has not been heard since our latest claim."""
        self._able = False
        self._version = 0

    def word(self, revision: int = 0) -> Word:
        """What it tells about itself."""
        return Word(
            run=self.run,
            post=self.post,
            generation=self.highest if self.post is Post.STANDBY else self.generation,
            version=self._version,
            able=self._able,
            revision=revision,
        )

    def handle(self, event: Event) -> list[Effect]:
        """Takes an event in. Gives what is to be done, in this order."""
        match event:
            case Heard(word):
                return self._heard(word)
            case Passed():
                return self._passed(event)
            case Granted(generation):
                return self._granted(generation)
            case Outbid(generation):
                return self._outbid(generation)

    def _heard(self, word: Word) -> list[Effect]:
        self._silence, self.timeout, self._alone = 0.0, self._takeover, False
        self.highest = max(self.highest, word.generation)
        if self.post is Post.MASTER and word.post is Post.MASTER and word.generation > self.generation:
            return self._retire()
        if self.post is Post.STANDBY and word.post is Post.STANDBY and self._able and self._rank > _rank(word):
            return self._claim()
        return []

    def _passed(self, event: Passed) -> list[Effect]:
        self._able, self._version = event.able, event.version
        if self.post is not Post.STANDBY:
            return []
        self._silence += min(event.seconds, HOLD)
        return self._claim() if self._able and self._silence >= self.timeout else []

    def _granted(self, generation: int) -> list[Effect]:
        if self.post is not Post.CLAIMING or generation != self.generation:
            return []
        self.post = Post.MASTER
        return [Serve(generation)]

    def _outbid(self, generation: int) -> list[Effect]:
        self.highest = max(self.highest, generation)
        if self.post is Post.STANDBY or generation <= self.generation:
            return []
        if self._alone:
            self.timeout = min(2 * self.timeout, LONGEST)
        return self._retire()

    def _claim(self) -> list[Effect]:
        election = (self.highest >> _CANDIDATE) + 1
        self.generation = self.highest = election << _CANDIDATE | self._candidate
        self.post, self._alone = Post.CLAIMING, True
        return [Claim(self.generation)]

    def _retire(self) -> list[Effect]:
        served, self.post, self._silence = self.post is Post.MASTER, Post.STANDBY, 0.0
        return [Retire()] if served else []

    @property
    def _rank(self) -> tuple[bool, int, str]:
        return _rank(self.word())


def _rank(word: Word) -> tuple[bool, int, str]:
    """Of two standbys the greater is to be master."""
    return word.able, word.version, word.run
