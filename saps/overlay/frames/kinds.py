"""All frames between brokers: one struct per frame, tagged with a number. docs/wire-protocol.md is the specification.

Frames of one link session arrive in the order sent, without gaps, until the link goes down.
"""

from __future__ import annotations

from saps.overlay.frames.calls import Broadcast, Gathered, Gone, Locate
from saps.overlay.frames.delivery import (
    Ack,
    Caught,
    CaughtUp,
    CutOff,
    DefineBroker,
    DefineSlice,
    Enlist,
    Enlisted,
    GroupDelivery,
    Handed,
    HighWater,
    MadeUp,
    Missed,
    Nack,
    OfmAck,
    Publish,
    Settled,
    Skip,
    Tell,
    Told,
    WantedFilters,
)
from saps.overlay.frames.ring import (
    Check,
    Find,
    Forgot,
    Found,
    Heal,
    Insert,
    Inserted,
    Known,
    Lapsed,
    Leave,
    LeaveAck,
    Level,
    Ping,
    Pong,
    Reached,
    Relay,
    Relink,
    RingSplit,
    Seek,
    SetLeft,
    StartProbe,
    There,
    Unlink,
    Unlinked,
    Whois,
)
from saps.overlay.frames.sessions import (
    Append,
    Appended,
    Arrived,
    Bequest,
    Departed,
    Guard,
    Heir,
    HeirAnswer,
    Inherited,
    Mourned,
    Offer,
    Pull,
    Replaced,
    Snapshot,
    TakeOver,
    TakeOverAnswer,
    Unguard,
)

AnyFrame = (
    Insert
    | Inserted
    | SetLeft
    | Unlink
    | Unlinked
    | Relink
    | Seek
    | Level
    | Find
    | Found
    | Locate
    | Broadcast
    | Gathered
    | Ping
    | Pong
    | Relay
    | Reached
    | Lapsed
    | Forgot
    | Heal
    | DefineBroker
    | DefineSlice
    | Publish
    | Ack
    | Nack
    | Skip
    | Leave
    | LeaveAck
    | Gone
    | Check
    | RingSplit
    | Whois
    | Known
    | StartProbe
    | There
    | OfmAck
    | HighWater
    | Enlist
    | Enlisted
    | GroupDelivery
    | Handed
    | Settled
    | Guard
    | Unguard
    | Mourned
    | TakeOver
    | TakeOverAnswer
    | Pull
    | Snapshot
    | Arrived
    | Departed
    | Offer
    | Append
    | Appended
    | Replaced
    | Heir
    | HeirAnswer
    | Inherited
    | Bequest
    | Missed
    | WantedFilters
    | MadeUp
    | Caught
    | CutOff
    | CaughtUp
    | Tell
    | Told
)
