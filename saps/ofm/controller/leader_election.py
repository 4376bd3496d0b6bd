"""Decides which of two controllers is master: a machine in each of them, with the switches as arbiters.

A switch obeys the controller with the highest *generation* it has heard of (OpenFlow 1.3.5, 6.3.6). So no switch has
two masters, whatever the controllers believe of each other. A generation is an election's number followed by 32 bits
that name the candidate. So two controllers never claim the same generation.

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
"""Longest timeout of the peer's silence in seconds."""
HOLD = 1.0
"""Most seconds that count of one interval: a blocked process has received nothing meanwhile."""
_CANDIDATE = 32
"""Number of bits that name the candidate."""


class Post(StrEnum):
    """The role of a controller in a pair."""

    STANDBY = "standby"
    """The controller follows the master, and answers no OFGate."""
    CLAIMING = "claiming"
    """The controller is asking the switches."""
    MASTER = "master"


class ElectionState(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a controller about itself."""

    run: str
    """Name of this run."""
    post: Post
    generation: int = 0
    """The controller's own generation as a master or candidate; otherwise the highest it has heard of."""
    version: int = 0
    """Version of its state. Of two controllers in contact, the one with the greater version has the later state."""
    able: bool = False
    """Whether it reaches enough switches to be master."""
    revision: int = 0
    """Number of changes of its state in this run."""


# -- events


@dataclass(frozen=True, slots=True)
class Heard:
    """The peer has sent its state."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class Passed:
    """Time has passed, in seconds. `able` says whether this controller reaches enough switches; `version` is that of
    its state."""

    seconds: float
    able: bool
    version: int


@dataclass(frozen=True, slots=True)
class Granted:
    """All reachable switches have granted the claim."""

    generation: int


@dataclass(frozen=True, slots=True)
class Outbid:
    """A switch has heard of this generation."""

    generation: int


Event: TypeAlias = Heard | Passed | Granted | Outbid

# -- effects


@dataclass(frozen=True, slots=True)
class Claim:
    """Ask all switches for the role of master. Answer by `Granted` or `Outbid`."""

    generation: int


@dataclass(frozen=True, slots=True)
class Serve:
    """Begin to work as the controller, from the state that the peer had."""

    generation: int


@dataclass(frozen=True, slots=True)
class Retire:
    """Stop working as the controller."""


Effect: TypeAlias = Claim | Serve | Retire


class Leadership:
    """The machine of an election; only `handle` changes it."""

    def __init__(self, run: str, candidate: int, takeover: float) -> None:
        """`candidate` is a number of 32 bits that no other controller has. `takeover` is the silence in seconds after
        which the peer is declared dead."""
        self.run = run
        self.post = Post.STANDBY
        self.generation = 0
        """Generation of this controller's latest claim."""
        self.highest = 0
        """Highest generation heard of."""
        self.timeout = takeover
        """Present timeout in seconds of the peer's silence, or of its lack of switches as a master. It doubles with
        each election lost to a peer that is not heard. Otherwise two controllers that reach the same switches, but not
        each other, would depose each other forever."""
        self._takeover = takeover
        self._candidate = candidate
        self._silence = 0.0
        self._alone = True
        """Whether the peer has not been heard since this controller's latest claim."""
        self._able = False
        self._version = 0

    def election(self, revision: int = 0) -> ElectionState:
        """Return this controller's report about itself."""
        return ElectionState(
            run=self.run,
            post=self.post,
            generation=self.highest if self.post is Post.STANDBY else self.generation,
            version=self._version,
            able=self._able,
            revision=revision,
        )

    def handle(self, event: Event) -> list[Effect]:
        """Take in an event. Return the effects to carry out, in this order."""
        match event:
            case Heard(state):
                return self._heard(state)
            case Passed():
                return self._passed(event)
            case Granted(generation):
                return self._granted(generation)
            case Outbid(generation):
                return self._outbid(generation)

    def _heard(self, state: ElectionState) -> list[Effect]:
        self.timeout, self._alone = self._takeover, False
        if state.able or state.post is not Post.MASTER:  # a master cut off from the switches is as good as dead
            self._silence = 0.0
        self.highest = max(self.highest, state.generation)
        if self.post is Post.MASTER and state.post is Post.MASTER and state.generation > self.generation:
            return self._retire()
        if self.post is Post.STANDBY and state.post is Post.STANDBY and self._able and self._rank > _rank(state):
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
        # A higher election number than any known, so that switches prefer this claim to all earlier ones.
        election = (self.highest >> _CANDIDATE) + 1
        self.generation = self.highest = election << _CANDIDATE | self._candidate
        self.post, self._alone = Post.CLAIMING, True
        return [Claim(self.generation)]

    def _retire(self) -> list[Effect]:
        served, self.post, self._silence = self.post is Post.MASTER, Post.STANDBY, 0.0
        return [Retire()] if served else []

    @property
    def _rank(self) -> tuple[bool, int, str]:
        return _rank(self.election())


def _rank(state: ElectionState) -> tuple[bool, int, str]:
    """Return the rank of a standby: of two standbys, the greater one claims to be master."""
    return state.able, state.version, state.run
