"""The name in a broker's certificate: its cluster and broker name, as a URI."""

from __future__ import annotations

import re
from typing import NamedTuple

PREFIX = "saps://mesh/"
_LEVEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_NAME = re.compile(rf"{PREFIX}(?P<cluster>{_LEVEL}(?:/{_LEVEL}){{0,7}})/(?P<broker>{_LEVEL})")


class Identity(NamedTuple):
    """A broker's name together with its cluster."""

    cluster: str
    """Path of the site, such as ``tokyo/ward1``."""
    broker: str

    @property
    def uri(self) -> str:
        """The form used in certificates: ``saps://mesh/tokyo/ward1/b1``. Raises `ValueError` if a name does not fit."""
        uri = f"{PREFIX}{self.cluster}/{self.broker}"
        if identity_in(uri) != self:
            raise ValueError(f"{self.broker!r} of cluster {self.cluster!r} cannot stand in a certificate")
        return uri

    def __str__(self) -> str:
        return f"{self.broker} of {self.cluster}"


def identity_in(uri: str) -> Identity | None:
    """Parse the URI of an identity; return None for any other URI."""
    found = _NAME.fullmatch(uri)
    return Identity(found["cluster"], found["broker"]) if found is not None else None
