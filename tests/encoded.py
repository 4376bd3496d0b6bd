"""Publications as the packets they came as, for the tests of what crosses so (`saps.plain.Encoded`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from saps.frontend.mqtt.encode import encode
from saps.frontend.mqtt.packets import V5, Publish
from saps.overlay.frames import Part, Stretch
from saps.overlay.runs import stretch_of
from saps.plain import Encoded


def encoded_of(sent: Sequence[tuple[str, bytes]], version: int = V5) -> Encoded:
    """These publications (topic, payload) of QoS 0."""
    packets = [encode(Publish(topic, payload), version) for topic, payload in sent]
    topics = list(dict.fromkeys(topic for topic, _ in sent))
    which = [topics.index(topic) for topic, _ in sent] if len(topics) > 1 else None
    return Encoded(version, b"".join(packets), topics, list(accumulate(map(len, packets))), which)


def stretch(origin: int, parts: Sequence[tuple[str, int, int]], sent: Sequence[tuple[str, bytes]]) -> Stretch:
    """A frame of these publications; each part is a topic, and the number of its first publication and of the one
    before that. To nobody else, in MQTT 5."""
    frame = stretch_of(encoded_of(sent), [Part(*part) for part in parts])
    frame.origin = origin
    return frame
