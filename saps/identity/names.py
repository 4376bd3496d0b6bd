"""The name in a certificate: which broker of which cluster its holder may say to be."""

from __future__ import annotations

import re
from typing import NamedTuple

PREFIX = "saps://mesh/"
_LEVEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_NAME = re.compile(rf"{PREFIX}(?P<cluster>{_LEVEL}(?:/{_LEVEL}){{0,7}})/(?P<broker>{_LEVEL})")


class Identity(NamedTuple):
    """A broker's name, bound to its cluster."""

    cluster: str
    """Path of the site, such as ``tokyo/ward1``."""
    broker: str

    @property
    def uri(self) -> str:
        """As it stands in a certificate: ``saps://mesh/tokyo/ward1/b1``. Raises ValueError if it cannot."""
        uri = f"{PREFIX}{self.cluster}/{self.broker}"
        if identity_in(uri) != self:
            raise ValueError(f"{self.broker!r} of cluster {self.cluster!r} cannot stand in a certificate")
        return uri

    def __str__(self) -> str:
        return f"{self.broker} of {self.cluster}"


def identity_in(uri: str) -> Identity | None:
    """The identity that a URI writes, or None if it writes none."""
    found = _NAME.fullmatch(uri)
    return Identity(found["cluster"], found["broker"]) if found is not None else None
