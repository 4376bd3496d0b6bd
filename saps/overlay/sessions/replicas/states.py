"""What a holder of copies does about their owner: one table. `python -m saps.overlay.sessions.replicas.states` draws
it."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Of one owner's log at one holder."""

    FOLLOWING = "following"
    """The owner is heard; its log is taken in."""
    ASKING = "asking"
    """The owner is dead to this broker: what do the other holders say?"""
    STANDBY = "standby"
    """Another holder adopts."""
    ADOPTING = "adopting"
    """This broker adopts; the owner's frames are refused from now on."""
    RESTORED = "restored"
    """It was in this broker's file when it started."""
    FORGOTTEN = "forgotten"
    """The sessions are somebody's own again, who has copies of them made."""


class Event(StrEnum):
    """What happens to it."""

    OWNER_LOST = "owner lost"
    """It is dead to this broker, or has left."""
    OWNER_HEARD = "owner heard"
    """In the same life."""
    FIRST = "first in line"
    """Nobody hears the owner, and nobody who comes before this broker has all of the log."""
    SECOND = "not first"
    HEIR_LOST = "heir lost"
    """The one that adopts is dead to this broker, or has not done so in time."""
    DONE = "adopted"
    """By this broker, and copied; or another one has said so."""
    RENEWED = "owner began anew"
    """It has begun another log."""


TABLE: dict[tuple[State, Event], State] = {
    (State.FOLLOWING, Event.OWNER_LOST): State.ASKING,
    (State.FOLLOWING, Event.RENEWED): State.FORGOTTEN,
    (State.ASKING, Event.OWNER_HEARD): State.FOLLOWING,
    (State.ASKING, Event.FIRST): State.ADOPTING,
    (State.ASKING, Event.SECOND): State.STANDBY,
    (State.ASKING, Event.DONE): State.FORGOTTEN,
    (State.ASKING, Event.RENEWED): State.FORGOTTEN,
    (State.STANDBY, Event.OWNER_HEARD): State.FOLLOWING,
    (State.STANDBY, Event.RENEWED): State.FORGOTTEN,
    (State.STANDBY, Event.HEIR_LOST): State.ASKING,
    (State.STANDBY, Event.DONE): State.FORGOTTEN,
    (State.ADOPTING, Event.DONE): State.FORGOTTEN,
    (State.RESTORED, Event.FIRST): State.ADOPTING,
    (State.RESTORED, Event.DONE): State.FORGOTTEN,
    (State.RESTORED, Event.RENEWED): State.FORGOTTEN,
}
"""Whatever is not in it changes nothing."""


def following(state: State, event: Event) -> State:
    """The state after an event."""
    return TABLE.get((state, event), state)


def drawn() -> str:
    """The table as Markdown."""
    events = [event for event in Event if any(known is event for _, known in TABLE)]
    lines = ["| | " + " | ".join(event.value for event in events) + " |", "| --- " * (len(events) + 1) + "|"]
    for state in State:
        cells = [TABLE[state, event].value if (state, event) in TABLE else "" for event in events]
        if any(cells):
            lines.append(f"| **{state.value}** | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(drawn())
