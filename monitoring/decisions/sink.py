"""Decisions on their way to OFGate: in order, until they are there, and the same ones any number of times.

OFGate takes ``PUT /v1/decisions`` with a whole table: the topics that shall have trees. It ignores a table it has, and
refuses an older one, so sending twice changes nothing.
"""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monitoring.decisions.store import Store
from monitoring.decisions.table import OFM, REVOKE, Table

logger = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds for one request."""


class OfgateError(Exception):
    """OFGate cannot be reached, or does not take a table now."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Files of a certificate of the mesh (`saps ca`), read anew for each request: they are renewed."""

    certificate: Path
    authority: Path

    def context(self) -> ssl.SSLContext:
        """To send with. Raises OSError."""
        from saps.identity.credentials import CredentialError, FileSet, from_files  # here: few need it

        try:
            return from_files(FileSet(str(self.certificate), "", str(self.authority), "")).https
        except CredentialError as error:
            raise OSError(error.reason) from None


def message(table: Table, job: Mapping[str, float] | None = None) -> dict[str, Any]:
    """What OFGate gets. `job`: how the job is, for the operator's page."""
    rows = [
        {
            "topic": d.topic, "saving": d.saving, "cost": d.cost, "since": d.since, "reason": d.reason, "rate": d.rate,
            "size": d.size, "saved": d.saved, "predicted": d.predicted,
        }
        for d in table.decisions
        if d.mode == OFM
    ]  # fmt: skip
    revoked = [{"topic": d.topic, "reason": d.reason} for d in table.decisions if d.action == REVOKE]
    body = {"version": 1, "epoch": table.epoch, "digest": table.digest, "trees": rows, "revoked": revoked}
    return {**body, "job": dict(job)} if job is not None else body


class Sink:
    """Sends what the store has and OFGate has not. One line when OFGate goes, one when it is back."""

    def __init__(
        self,
        urls: list[str],
        store: Store,
        token: str | None = None,
        identity: Identity | None = None,
        told: Callable[[], Mapping[str, float] | None] = lambda: None,
    ) -> None:
        """`urls` of OFGates, tried in order: only the one that leads takes tables. `identity`: for ``https`` ones.
        `told`: how the job is."""
        self._identity = identity
        self._urls = urls
        self._store = store
        self._token = token
        self._told = told
        self._reachable = True

    def flush(self) -> bool:
        """Send what is due. A table says all there is to know, so of several only the newest goes. True if nothing is
        left to send."""
        due = self._store.unsent()
        if not due or not self._urls:
            self._store.mark_sent(due)
            return True
        table = self._store.table(due[-1])
        try:
            self._send(message(table, self._told()))
        except OfgateError as error:
            if self._reachable:
                logger.error("OFGate does not take the decisions of epoch %d, trying again: %s", table.epoch, error)
            self._reachable = False
            return False
        if not self._reachable:
            logger.info("OFGate takes decisions again")
        self._reachable = True
        self._store.mark_sent(due)
        return True

    def remind(self) -> bool:
        """Send the newest table once more: an OFGate that has started anew does not know it. True if there was one, and
        it was taken."""
        epochs = self._store.epochs()
        if not epochs or not self._urls or self._store.unsent():
            return False
        try:
            self._send(message(self._store.table(epochs[-1]), self._told()))
        except OfgateError:
            return False
        return True

    def _send(self, body: dict[str, Any]) -> None:
        """Raises `OfgateError`."""
        faults = []
        for url in self._urls:
            headers = {"Content-Type": "application/json"}
            if self._token:
                headers["Authorization"] = f"Bearer {self._token}"
            request = urllib.request.Request(
                url.rstrip("/") + "/v1/decisions", json.dumps(body).encode(), headers, method="PUT"
            )
            try:
                context = self._identity.context() if self._identity is not None else None
                with urllib.request.urlopen(request, timeout=PATIENCE, context=context):
                    return
            except urllib.error.HTTPError as error:
                faults.append(f"{url}: {error.code} {error.read(500).decode(errors='replace').strip()}")
            except (OSError, ValueError, http.client.HTTPException) as error:
                faults.append(f"{url}: {error}")
        raise OfgateError("; ".join(faults))
