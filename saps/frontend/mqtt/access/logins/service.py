"""Users and rights that an HTTP service knows: what it is asked, what it may answer, and what is remembered of that.

Without an answer that can be used nobody comes in.
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
"""Answers that are remembered, about 0.5 KiB each."""
KEPT_TOPICS = 100_000
"""Answers about topics that are remembered, about 0.5 KiB each."""
KEPT_REFUSAL = 5.0
"""Seconds for which a refusal is remembered, at most: a device that goes on trying costs no question each time."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """What the service is told, as a JSON object."""

    user: str | None
    password: str | None = None
    """Of a login; left out where rights are asked for."""
    client: str
    """The client identifier; empty: the broker will choose one, or the client is an operator."""
    address: str


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the service is told of a publication or subscription, as a JSON object."""

    user: str | None
    client: str
    address: str
    action: Action
    topic: str
    """Of a publication; or the filter of a subscription, without ``$share`` and the group."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the service says, as a JSON object."""

    allow: bool
    user: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_BYTES)] | None = None
    """Who it is, if not as named."""
    expires: Annotated[float, msgspec.Meta(gt=0, le=1e10)] | None = None
    """Seconds until the client is to be disconnected; None: never."""
    rights: Grants | None = None
    """What it may do, within what the ACL file allows; None: all that."""


class Verdict(NamedTuple):
    """An answer, as it is remembered."""

    allow: bool
    user: str | None
    ends: float
    """When the client is to be disconnected, in seconds since the epoch."""
    granted: Policy | None


REFUSED = Verdict(False, None, inf, NOTHING)
Ask = Callable[[str, bytes, str, Callable[["Answer | None"], None]], bool]
"""(URL, body, client's address, done): ask the service and then, never before this returns, call `done`, with None if
there is no answer that can be used. False, and nothing happens, if too many wait already, or too many from that
address."""


def read_answer(status: int, body: bytes) -> Answer:
    """Raises `ValueError`, saying why an answer cannot be used."""
    if status in (401, 403):
        return Answer(allow=False)
    if status != 200:
        raise ValueError(f"status {status}")
    answer = msgspec.json.decode(body, type=Answer)
    if answer.rights is not None:
        policy_of(answer.rights)
    return answer


class Service:
    """Asks, and remembers."""

    def __init__(self, options: HttpOptions, secret: bytes, wall: Callable[[], float]) -> None:
        """`secret`: of this process, so that what is remembered tells no password. `wall`: seconds since the epoch."""
        self.options = options
        self.ask: Ask = lambda url, body, host, done: False
        self._secret = secret
        self._wall = wall
        self._known: dict[bytes, tuple[float, Verdict]] = {}
        """Until when, and what."""
        self._wishes: dict[Wish, tuple[float, bool]] = {}
        """The same of topics."""

    def known(self, url: str, client: Client) -> Verdict | None:
        """What is remembered; None: the service has to be asked."""
        until, verdict = self._known.get(self._key(url, client), (0.0, None))
        return verdict if until > self._wall() else None

    def inquire(self, url: str, client: Client, done: Callable[[Verdict | None], None]) -> bool:
        """As `ask`; `done` gets None if nobody knows."""

        def answered(answer: Answer | None) -> None:
            done(None if answer is None else self._remembered(url, client, answer))

        return self.ask(url, msgspec.json.encode(client), client.address, answered)

    def forget(self) -> None:
        """Ask anew from now on."""
        self._known.clear()
        self._wishes.clear()

    def permits(self, wish: Wish) -> bool | None:
        """What is remembered of a topic; None: the service has to be asked."""
        until, allowed = self._wishes.get(wish, (0.0, False))
        return allowed if until > self._wall() else None

    def inquire_topic(self, wish: Wish, done: Callable[[bool], None]) -> bool:
        """As `ask`; what nobody answers is not permitted."""

        def answered(answer: Answer | None) -> None:
            if answer is not None:
                keep = self.options.cache if answer.allow else min(self.options.cache, KEPT_REFUSAL)
                self._wishes.pop(wish, None)
                while len(self._wishes) >= KEPT_TOPICS:
                    del self._wishes[next(iter(self._wishes))]
                self._wishes[wish] = self._wall() + keep, answer.allow
            done(answer is not None and answer.allow)

        return self.ask(self.options.topics, msgspec.json.encode(wish), wish.address, answered)

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
