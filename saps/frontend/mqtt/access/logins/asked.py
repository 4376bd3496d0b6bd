"""Restricts a client's rights by an HTTP service that decides topic by topic."""

from __future__ import annotations

from collections.abc import Callable

from saps.agents.user import Action, Rights
from saps.frontend.mqtt.access.logins.service import Service, TopicRequest


class AskedRights:
    """The rights of one client by the service's decisions. (A `saps.agents.user.Rights`, and its own
    `saps.agents.user.Asker`.)

    Only topics that `settle` has permitted for the current request are permitted. A filter that the service permits
    is permitted with all its topics.
    """

    __slots__ = ("_base", "_client_id", "_host", "_service", "_subscribable", "_user", "publishable", "timeout")

    def __init__(self, base: Rights | None, service: Service, user: str | None, client_id: str, host: str) -> None:
        """Make the rights of one client. `base`: its rights by other rules; None: all. `host`: its IP address."""
        self._base = base
        self._service = service
        self._user, self._client_id, self._host = user, client_id, host
        self._subscribable: set[str] = set()
        self.timeout = service.options.timeout
        self.publishable: set[str] = set()

    @property
    def asker(self) -> AskedRights:
        return self

    # ---- the rights

    def may_publish(self, topic: str) -> bool:
        return topic in self.publishable

    def may_subscribe(self, topic_filter: str) -> bool:
        return topic_filter in self._subscribable

    def may_read(self, topic: str) -> bool:
        return self._base is None or self._base.may_read(topic)

    # ---- the asker

    def known(self, action: Action, topic: str) -> bool | None:
        base = self._base
        if base is not None and not (base.may_publish if action == "publish" else base.may_subscribe)(topic):
            return False
        return self._service.permits(self._request(action, topic))

    def ask(self, action: Action, topic: str, done: Callable[[bool], None], /) -> bool:
        return self._service.inquire_topic(self._request(action, topic), done)

    def settle(self, action: Action, found: dict[str, bool]) -> None:
        permitted = {topic for topic, allowed in found.items() if allowed}
        if action == "publish":
            self.publishable = permitted
        else:
            self._subscribable = permitted

    def may_keep(self, topic_filter: str) -> bool:
        return self._base is None or self._base.may_subscribe(topic_filter)

    def _request(self, action: Action, topic: str) -> TopicRequest:
        return TopicRequest(user=self._user, client=self._client_id, address=self._host, action=action, topic=topic)
