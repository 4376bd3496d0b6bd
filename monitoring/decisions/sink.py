"""Sends decisions to OFGate in order, and repeats them until OFGate has them.

OFGate takes ``PUT /v1/decisions`` with a whole table: the topics that shall have trees. OFGate ignores a table that it
has and refuses an older one, so sending a table twice changes nothing.
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

TIMEOUT = 10.0
"""Timeout of a request in seconds."""


class OfgateError(Exception):
    """No OFGate can be reached, or none takes the table now."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Files of a certificate of the mesh (`saps ca`). They are read for each request, because they are renewed."""

    certificate: Path
    authority: Path

    def context(self) -> ssl.SSLContext:
        """Return a TLS context for requests. Raises OSError for unusable files."""
        from saps.identity.credentials import CredentialError, FileSet, from_files  # here: few need it

        try:
            return from_files(FileSet(str(self.certificate), "", str(self.authority), "")).https
        except CredentialError as error:
            raise OSError(error.reason) from None


def message(table: Table, job: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return the body of a request to OFGate. `job` has the job's metrics for the operator's page."""
    rows = [
        {
            "topic": d.topic, "saving": d.saving, "cost": d.cost, "since": d.since, "reason": d.reason, "rate": d.rate,
            "size": d.size, "saved": d.saved, "predicted": d.predicted,
        }
        for d in table.decisions
        if d.mode == OFM
    ]  # fmt: skip
    revoked = [{"topic": d.topic, "reason": d.reason} for d in table.decisions if d.action == REVOKE]
    beside = [{"topic": d.topic, "rate": d.rate, "size": d.size} for d in table.beside]
    body = {
        "version": 1, "epoch": table.epoch, "digest": table.digest, "trees": rows, "revoked": revoked, "beside": beside
    }  # fmt: skip
    return {**body, "job": dict(job)} if job is not None else body


class Sink:
    """Sends tables that are in the store and not at OFGate. Logs once when OFGate is lost and once when it is back."""

    def __init__(
        self,
        urls: list[str],
        store: Store,
        token: str | None = None,
        identity: Identity | None = None,
        told: Callable[[], Mapping[str, float] | None] = lambda: None,
    ) -> None:
        """`urls` of OFGates are tried in order, because only the leader takes tables.

        `token` goes with each request, `identity` is for ``https`` URLs, and `told` returns the job's metrics."""
        self._identity = identity
        self._urls = urls
        self._store = store
        self._token = token
        self._told = told
        self._reachable = True

    def flush(self) -> bool:
        """Send the newest of the unsent tables, which replaces the others. Returns True if nothing is left to send."""
        due = self._store.unsent()
        if not due:
            return True
        if not self._urls:
            self._store.mark_sent(due[-1])
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
        self._store.mark_sent(due[-1])
        return True

    def remind(self) -> bool:
        """Send the newest table once more, because a restarted OFGate does not know it.

        Returns True if OFGate took the table. Returns False without a table or while tables are unsent."""
        epochs = self._store.epochs()
        if not epochs or not self._urls or self._store.unsent():
            return False
        try:
            self._send(message(self._store.table(epochs[-1]), self._told()))
        except OfgateError:
            return False
        return True

    def _send(self, body: dict[str, Any]) -> None:
        """Send a request to the URLs in order until one accepts it. Raises `OfgateError` if none does."""
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
                with urllib.request.urlopen(request, timeout=TIMEOUT, context=context):
                    return
            except urllib.error.HTTPError as error:
                faults.append(f"{url}: {error.code} {error.read(500).decode(errors='replace').strip()}")
            except (OSError, ValueError, http.client.HTTPException) as error:
                faults.append(f"{url}: {error}")
        raise OfgateError("; ".join(faults))
