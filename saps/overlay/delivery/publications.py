"""Operations on the publications of a `Publish` frame: check, select, merge, and convert from and to a batch.

A broker keeps its own publications as unaddressed frames (`origin`, `slice` and `token` are 0) until they are
acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import lt

from saps.messages import Properties
from saps.overlay.frames.delivery import Part, Publish
from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import MOST, Batch


def fault(frame: Publish) -> str | None:
    """Return why the publications of a received frame are inconsistent with its parts, or None if they fit. Checks
    lengths, indexes, and that the sequence numbers of each part ascend above `prev`."""
    count, parts = len(frame.which), frame.parts
    if len(frame.seqs) != count or len(frame.payloads) != count:
        return "publications without a number or a payload"
    if len(frame.given) not in (0, count) or max(frame.given, default=0) > len(frame.properties):
        return "publications without their properties"
    if len(parts) == 1:
        seqs = frame.seqs
        if any(frame.which) or not (parts[0].prev < seqs[0] and all(map(lt, seqs, seqs[1:]))):
            return "publications that are not in their order"
        return None
    if set(frame.which) != set(range(len(parts))) or len({part.topic for part in parts}) != len(parts):
        return "publications that are not those of its parts"
    last = [part.prev for part in parts]
    for number, seq in zip(frame.which, frame.seqs, strict=True):
        if seq <= last[number]:
            return "publications that are not in their order"
        last[number] = seq
    return None


def first_seq(frame: Publish) -> int:
    """Return the sequence number of the first publication. It sorts the frames of one publisher in their order."""
    return frame.seqs[0]


def batch_of(frame: Publish, origin: BrokerRef) -> Batch:
    """Return the batch that the frame carries."""
    topics = [part.topic for part in frame.parts]
    properties = properties_of(frame) if frame.given else None
    batch = Batch(topics, frame.which, frame.payloads, frame.qos, frame.retain, properties)
    batch.publisher, batch.seqs = origin, frame.seqs
    return batch


def properties_of(frame: Publish) -> list[Properties | None] | None:
    """Return the properties of each publication, or None if no publication has properties."""
    if not frame.given:
        return None
    places = [None, *frame.properties]
    return [places[place] for place in frame.given]


def give(frame: Publish, properties: Sequence[Properties | None], places: dict[int, int]) -> None:
    """Add the properties of publications to a frame. `places` maps the `id` of each properties object in the frame to
    its place there, from 1; it is updated, so that shared objects are sent once."""
    for each in properties:
        place = 0
        if each is not None:
            place = places.get(id(each), 0)
            if not place:
                frame.properties.append(each)
                place = places[id(each)] = len(frame.properties)
        frame.given.append(place)


def unaddressed(batch: Batch, prevs: Sequence[int]) -> Publish:
    """Return an unaddressed frame with the publications of a numbered batch. `prevs` are the sequence numbers before
    the first publication of each topic."""
    parts = [Part(topic, prev) for topic, prev in zip(batch.topics, prevs, strict=True)]
    which, seqs, payloads = list(batch.which), list(batch.seqs), list(batch.payloads)
    frame = Publish(0, 0, 0, batch.qos, batch.retain, parts, which, seqs, payloads, [], [])
    if batch.properties is not None:
        give(frame, batch.properties, {})
    return frame


def select(frame: Publish, indexes: Sequence[int]) -> Publish:
    """Return an unaddressed frame with the publications at these indexes, which must ascend. Returns the frame itself
    if that is all of them."""
    if len(indexes) == len(frame.which):
        return frame
    prevs = prevs_of(frame)
    numbers: dict[int, int] = {}
    parts: list[Part] = []
    which: list[int] = []
    for index in indexes:
        number = frame.which[index]
        if number not in numbers:
            numbers[number] = len(parts)
            parts.append(Part(frame.parts[number].topic, prevs[index]))
        which.append(numbers[number])
    seqs, payloads = [frame.seqs[index] for index in indexes], [frame.payloads[index] for index in indexes]
    part = Publish(0, 0, 0, frame.qos, frame.retain, parts, which, seqs, payloads, [], [])
    properties = properties_of(frame)
    if properties is not None:
        give(part, [properties[index] for index in indexes], {})
    return part


def to_topic(frame: Publish, topic: str, after: int, upto: int) -> Publish | None:
    """Return the publications to a topic with sequence numbers in (`after`, `upto`], or None if there are none."""
    wanted = {number for number, part in enumerate(frame.parts) if part.topic == topic}
    if not wanted:
        return None
    indexes = [
        index
        for index, (number, seq) in enumerate(zip(frame.which, frame.seqs, strict=True))
        if number in wanted and after < seq <= upto
    ]
    return select(frame, indexes) if indexes else None


def to_parts(frame: Publish, wanted: Sequence[bool]) -> Publish | None:
    """Return the publications to the parts marked in `wanted` (one flag for each part), or None if there are none."""
    indexes = [index for index, number in enumerate(frame.which) if wanted[number]]
    return select(frame, indexes) if indexes else None


def prevs_of(frame: Publish) -> list[int]:
    """Return for each publication the sequence number of its predecessor to the same topic."""
    last = [part.prev for part in frame.parts]
    prevs: list[int] = []
    for number, seq in zip(frame.which, frame.seqs, strict=True):
        prevs.append(last[number])
        last[number] = seq
    return prevs


def counts_of(frame: Publish) -> list[tuple[str, int]]:
    """Return the topics of a frame, with the number of publications to each."""
    if len(frame.parts) == 1:
        return [(frame.parts[0].topic, len(frame.which))]
    counts = [0] * len(frame.parts)
    for number in frame.which:
        counts[number] += 1
    return [(part.topic, count) for part, count in zip(frame.parts, counts, strict=True)]


def together(bodies: Iterable[Publish]) -> list[Publish]:
    """Merge frames into as few frames as possible, in their order. In the new frames no part has a predecessor (`prev`
    is 0), so that receivers wait for none."""
    frames: list[Publish] = []
    numbers, places = dict[str, int](), dict[int, int]()
    for body in bodies:
        frame = frames[-1] if frames else None
        if (
            frame is None
            or (frame.qos, frame.retain) != (body.qos, body.retain)
            or len(frame.which) + len(body.which) > MOST
        ):
            frame = Publish(0, 0, 0, body.qos, body.retain, [], [], [], [], [], [])
            frames.append(frame)
            numbers, places = {}, {}
        _add(frame, body, numbers, places)
    return frames


def _add(frame: Publish, body: Publish, numbers: dict[str, int], places: dict[int, int]) -> None:
    before = len(frame.which)
    for number in body.which:
        topic = body.parts[number].topic
        if topic not in numbers:
            numbers[topic] = len(frame.parts)
            frame.parts.append(Part(topic, 0))
        frame.which.append(numbers[topic])
    frame.seqs += body.seqs
    frame.payloads += body.payloads
    properties = properties_of(body)
    if properties is not None and not frame.given:
        frame.given += [0] * before
    if frame.given or properties is not None:
        give(frame, properties or [None] * len(body.which), places)
