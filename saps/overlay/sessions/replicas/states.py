"""The state table of a holder of copies, by which it follows and replaces the owner.

`python -m saps.overlay.sessions.replicas.states` prints it."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of one owner's log at one holder."""

    FOLLOWING = "following"
    """The owner is alive, and this broker applies its log."""
    ASKING = "asking"
    """This broker has declared the owner dead, and asks the other holders."""
    STANDBY = "standby"
    """Another holder adopts the sessions."""
    ADOPTING = "adopting"
    """This broker adopts the sessions, and refuses the owner's frames from now on."""
    RESTORED = "restored"
    """The log was in this broker's file when it started."""
    FORGOTTEN = "forgotten"
    """The copy is of no use: some broker owns the sessions and makes its own copies."""


class Event(StrEnum):
    """An event of one owner's log at one holder."""

    OWNER_LOST = "owner lost"
    """This broker has declared the owner dead, or the owner has left."""
    OWNER_HEARD = "owner heard"
    """The owner is heard again, in the same incarnation."""
    FIRST = "first in line"
    """No holder hears the owner, and no better placed holder has the whole log."""
    SECOND = "not first"
    """Another holder adopts the sessions."""
    HEIR_LOST = "heir lost"
    """The adopting holder is declared dead, or has not adopted in time."""
    DONE = "adopted"
    """This broker has adopted the sessions and copied them, or another broker has reported that it did."""
    RENEWED = "owner began anew"
    """The owner has begun another log."""


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
"""The next state by state and event. An event without an entry changes nothing."""


def following(state: State, event: Event) -> State:
    """Return the state after an event."""
    return TABLE.get((state, event), state)


def drawn() -> str:
    """Return the table in Markdown."""
    events = [event for event in Event if any(known is event for _, known in TABLE)]
    lines = ["| | " + " | ".join(event.value for event in events) + " |", "| --- " * (len(events) + 1) + "|"]
    for state in State:
        cells = [TABLE[state, event].value if (state, event) in TABLE else "" for event in events]
        if any(cells):
            lines.append(f"| **{state.value}** | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(drawn())
