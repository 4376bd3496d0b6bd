"""Who may do what to a running mesh: viewer, operator, administrator (the table ``[roles]`` of the ACL file)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from saps.frontend.mqtt.access.patterns import NamePattern, Subject


class Role(IntEnum):
    """Each may do what those before it may."""

    NONE = 0
    VIEWER = 1
    """Sees the state of the mesh."""
    OPERATOR = 2
    """Disconnects clients, drains brokers, follows traffic, deletes retained messages."""
    ADMINISTRATOR = 3
    """Bans, and reads the audit log."""

    @property
    def word(self) -> str:
        """As the ACL file has it."""
        return self.name.lower()


class Roles:
    """The roles of users. A user has the highest one it is named for."""

    def __init__(self, users: Mapping[Role, tuple[NamePattern, ...]]) -> None:
        self._users = users

    def of(self, user: str | None) -> Role:
        """The role of a user; anonymous ones have none."""
        if user is None:
            return Role.NONE
        subject = Subject(user, None)
        fitting = [role for role, patterns in self._users.items() if any(p.fits(user, subject) for p in patterns)]
        return max(fitting, default=Role.NONE)
