"""Roles on a running mesh: viewer, operator and administrator (the table ``[roles]`` of the ACL file)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from saps.frontend.mqtt.access.patterns import NamePattern, Subject


class Role(IntEnum):
    """The roles. Each includes the rights of those before it."""

    NONE = 0
    VIEWER = 1
    """May see the state of the mesh."""
    OPERATOR = 2
    """May disconnect clients, drain brokers, follow traffic and delete retained messages."""
    ADMINISTRATOR = 3
    """May ban, and read the audit log."""

    @property
    def word(self) -> str:
        """The role's name in the ACL file."""
        return self.name.lower()


class Roles:
    """The roles of users. A user has the highest role whose patterns match the user's name."""

    def __init__(self, users: Mapping[Role, tuple[NamePattern, ...]]) -> None:
        self._users = users

    def of(self, user: str | None) -> Role:
        """Return the role of a user; anonymous clients (None) have `Role.NONE`."""
        if user is None:
            return Role.NONE
        subject = Subject(user, None)
        fitting = [role for role, patterns in self._users.items() if any(p.fits(user, subject) for p in patterns)]
        return max(fitting, default=Role.NONE)
