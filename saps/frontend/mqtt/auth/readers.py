"""Subscriptions under an ACL: a topic's messages go only to those who may read the topic.

Whether a message was published here, came from another broker, or is a will: it finds its subscribers here, so one
place is enough. Retained messages are found by a subscription; `saps.frontend.mqtt.grants` asks for each of them.
"""

from __future__ import annotations

from saps.frontend.mqtt.session import Session
from saps.subscriptions import SubscriptionIndex, Target


class ReadableSubscriptions(SubscriptionIndex):
    """An index that leaves out the subscribers that may not read a topic.

    It is asked once for each topic; the hub keeps the answer until subscriptions or rights change.
    """

    def targets(self, topic: str) -> tuple[Target, ...]:
        return tuple([target for target in super().targets(topic) if _may_read(target, topic)])


def _may_read(target: Target, topic: str) -> bool:
    agent = target.agent
    return not isinstance(agent, Session) or agent.rights is None or agent.rights.may_read(topic)
