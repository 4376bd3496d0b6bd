"""Asks an HTTP service about users and rights, and caches its answers.

Without a valid answer the broker refuses the client.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from math import inf
from typing import Annotated, NamedTuple

import msgspec

from saps.agents.user import Action
from saps.frontend.mqtt.access.acl import Policy
from saps.frontend.mqtt.access.logins.grants import NOTHING, Grants, policy_of
from saps.frontend.mqtt.access.options import HttpOptions
from saps.frontend.mqtt.access.users import MAX_NAME_BYTES

KEPT = 10_000
"""Most cached answers about logins and rights, about 0.5 KiB each."""
KEPT_TOPICS = 100_000
"""Most cached answers about topics, about 0.5 KiB each."""
KEPT_REFUSAL = 5.0
"""Longest time that a refusal is cached, in seconds. The cache spares the service a device that retries in a loop."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """The request about a login or a client's rights, as a JSON object."""

    user: str | None
    password: str | None = None
    """The password of a login; None in a request for rights."""
    client: str
    """The client identifier; empty if the broker will assign one, or for an operator."""
    address: str


class TopicRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request about a publication or subscription, as a JSON object."""

    user: str | None
    client: str
    address: str
    action: Action
    topic: str
    """The topic of a publication, or the filter of a subscription without ``$share`` and the group."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The service's answer to a `Client` or `TopicRequest`, as a JSON object."""

    allow: bool
    user: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_BYTES)] | None = None
    """The user name; None: the name in the request."""
    expires: Annotated[float, msgspec.Meta(gt=0, le=1e10)] | None = None
    """Seconds until the broker must disconnect the client; None: never."""
    rights: Grants | None = None
    """The client's rights within those of the ACL file; None: all of these."""


class Verdict(NamedTuple):
    """A cached answer about a login or a client's rights."""

    allow: bool
    user: str | None
    ends: float
    """When the broker must disconnect the client, in seconds since the epoch."""
    granted: Policy | None
    """The rights that the answer grants; None: the answer sets no limits."""


REFUSED = Verdict(False, None, inf, NOTHING)
Ask = Callable[[str, bytes, str, Callable[["Answer | None"], None]], bool]
"""Function (URL, body, client's address, done) that asks the service, and then calls `done` with the answer.

`done` is never called before the function returns. It gets None if there is no valid answer. The function returns False
and does nothing if too many requests wait, in all or from the client's address."""


def read_answer(status: int, body: bytes) -> Answer:
    """Decode an HTTP response of the service. Raises `ValueError` with the reason if it is no valid answer."""
    if status in (401, 403):
        return Answer(allow=False)
    if status != 200:
        raise ValueError(f"status {status}")
    answer = msgspec.json.decode(body, type=Answer)
    if answer.rights is not None:
        policy_of(answer.rights)
    return answer


class Service:
    """Asks the service and caches its answers."""

    def __init__(self, options: HttpOptions, secret: bytes, wall: Callable[[], float]) -> None:
        """Make a service without a connection; the driver then sets `ask`.

        `secret` is a secret of this process. It keys the digests in the cache, so that the cache reveals no password.
        `wall`: seconds since the epoch.
        """
        self.options = options
        self.ask: Ask = lambda url, body, host, done: False
        self._secret = secret
        self._wall = wall
        self._known: dict[bytes, tuple[float, Verdict]] = {}
        """By digest of the request: the expiry of a cached answer (seconds since the epoch), and the answer."""
        self._topics: dict[TopicRequest, tuple[float, bool]] = {}
        """By request about a topic: the expiry of a cached answer, and whether it allows the request."""

    def known(self, url: str, client: Client) -> Verdict | None:
        """Return the cached answer about a client, or None if the service has to be asked."""
        until, verdict = self._known.get(self._key(url, client), (0.0, None))
        return verdict if until > self._wall() else None

    def inquire(self, url: str, client: Client, done: Callable[[Verdict | None], None]) -> bool:
        """Ask the service about a client, then call `done` with the verdict, or None without a valid answer.

        Returns False and does nothing if too many requests wait (`Ask`).
        """

        def answered(answer: Answer | None) -> None:
            done(None if answer is None else self._remembered(url, client, answer))

        return self.ask(url, msgspec.json.encode(client), client.address, answered)

    def forget(self) -> None:
        """Clear the caches."""
        self._known.clear()
        self._topics.clear()

    def permits(self, request: TopicRequest) -> bool | None:
        """Return whether the cached answer allows the request, or None if the service has to be asked."""
        until, allowed = self._topics.get(request, (0.0, False))
        return allowed if until > self._wall() else None

    def inquire_topic(self, request: TopicRequest, done: Callable[[bool], None]) -> bool:
        """Ask the service about a topic, then call `done` with whether it allows the request; False without an answer.

        Returns False and does nothing if too many requests wait (`Ask`).
        """

        def answered(answer: Answer | None) -> None:
            if answer is not None:
                keep = self.options.cache if answer.allow else min(self.options.cache, KEPT_REFUSAL)
                self._topics.pop(request, None)
                while len(self._topics) >= KEPT_TOPICS:
                    del self._topics[next(iter(self._topics))]
                self._topics[request] = self._wall() + keep, answer.allow
            done(answer is not None and answer.allow)

        return self.ask(self.options.topics, msgspec.json.encode(request), request.address, answered)

    def _remembered(self, url: str, client: Client, answer: Answer) -> Verdict:
        now = self._wall()
        verdict, keep = REFUSED, min(self.options.cache, KEPT_REFUSAL)
        if answer.allow:
            granted = None if answer.rights is None else policy_of(answer.rights)
            ends = inf if answer.expires is None else now + answer.expires
            verdict, keep = Verdict(True, answer.user, ends, granted), min(self.options.cache, ends - now)
        if keep > 0:
            while len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            self._known[self._key(url, client)] = now + keep, verdict
        return verdict

    def _key(self, url: str, client: Client) -> bytes:
        return blake2b(url.encode() + msgspec.json.encode(client), key=self._secret, digest_size=32).digest()
