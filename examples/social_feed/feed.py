"""Who writes, who follows whom, who likes what. Pure: the same seed is the same feed.

Authors are ranked; the one with rank r is followed with a weight of 1 / r (Zipf's law). The first ones are known in the
whole city and write about news, music and sport; the others are followed by friends, who live nearby. Topics are
``feed/SUBJECT/AUTHOR/posts`` and ``feed/SUBJECT/AUTHOR/likes``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from examples.smart_city.readings import Reading
from examples.smart_city.scene import Broker, Publisher, Scene, Subscriber
from saps.topics import matches

READERS = 3
"""Reading apps at each broker."""
FOLLOWS = 6
"""Authors that an app follows."""
CELEBRITIES, KNOWN = 3, 10
"""Ranks up to which an author counts as a celebrity, or as known."""
CLASSES = ("celebrities", "known", "friends", "likes")
SUBJECTS = ("news", "music", "sport")
"""Of the known authors in turn; all others write to their friends."""
BUSIEST = 16.0
"""Posts a second of the first author; the others write at a rate of 1 / sqrt(r), friends at a tenth of that."""
LIKES = 3.0
"""A second, of each broker's readers together."""
WORDS = ("the rain", "in the city", "what a day", "late trains", "music", "at the harbour", "tonight", "!")


@dataclass(frozen=True, slots=True)
class Author:
    """Someone who writes."""

    rank: int
    home: Broker
    followers: tuple[str, ...]
    """The apps that follow it by name."""

    @property
    def place(self) -> str:
        """Its levels in topics."""
        subject = SUBJECTS[(self.rank - 1) % len(SUBJECTS)] if self.rank <= KNOWN else "friends"
        return f"feed/{subject}/u{self.rank:03d}"

    @property
    def posts(self) -> str:
        """The topic of its posts."""
        return f"{self.place}/posts"

    @property
    def likes(self) -> str:
        """The topic of likes of its posts."""
        return f"{self.place}/likes"

    @property
    def rate(self) -> float:
        """Posts a second."""
        return BUSIEST / math.sqrt(self.rank) / (1 if self.rank <= KNOWN else 10)


@dataclass(frozen=True, slots=True)
class Feed:
    """All of it."""

    authors: tuple[Author, ...]
    scene: Scene

    def clusters_of(self, topic: str) -> int:
        """How many clusters want a topic's messages from another one: what ALM sends each message to."""
        homes = {each.broker.cluster for each in self.scene.publishers if topic in each.topics}
        wanting = (each for each in self.scene.subscribers if any(matches(wanted, topic) for wanted in each.filters))
        wanted = {each.broker.cluster for each in wanting}
        return max((len(wanted - {home}) for home in homes), default=0)


def feed(brokers: Sequence[Broker], authors: int, seed: int) -> Feed:
    """The feed on these brokers."""
    rng = random.Random(seed)
    homes = {rank: brokers[rank % len(brokers)] for rank in range(1, authors + 1)}
    follows = {f"app-{broker.name}-{n}": _draw(rng, broker, homes) for broker in brokers for n in range(1, READERS + 1)}
    people = tuple(
        Author(rank, home, tuple(app for app, ranks in follows.items() if rank in ranks))
        for rank, home in homes.items()
    )
    publishers = [*_writers(people, brokers), *_fans(people, brokers)]
    subscribers = [*_readers(people, brokers, follows), *_authors(people, brokers), *_channels(brokers)]
    return Feed(people, Scene(tuple(brokers), tuple(publishers), tuple(subscribers), _itself, posts_of))


def class_of(topic: str) -> str:
    """The topic's class of popularity."""
    *_, name, what = topic.split("/")
    if what == "likes":
        return "likes"
    rank = int(name[1:])
    return CLASSES[0] if rank <= CELEBRITIES else CLASSES[1] if rank <= KNOWN else CLASSES[2]


def posts_of(topic: str, rng: random.Random) -> Iterator[Reading]:
    """Endless posts, or likes."""
    while True:
        yield {"text": " ".join(rng.choices(WORDS, k=rng.randint(3, 14)))} if topic.endswith("posts") else {"like": 1}


def _itself(topic: str) -> str:
    """Every topic is counted by itself."""
    return topic


def _draw(rng: random.Random, broker: Broker, homes: dict[int, Broker]) -> set[int]:
    """The ranks that an app at this broker follows, each once: drawn by weight among who is known and who is near."""
    ranks = [rank for rank, home in homes.items() if rank <= KNOWN or home.cluster == broker.cluster]
    weights, found = [1 / rank for rank in ranks], set[int]()
    while len(found) < min(FOLLOWS, len(ranks)):
        found.add(rng.choices(ranks, weights)[0])
    return found


def _writers(people: Sequence[Author], brokers: Sequence[Broker]) -> Iterator[Publisher]:
    """Who is known writes from an app of its own; the others at one broker share one, and write in turn."""
    for author in people[:KNOWN]:
        yield Publisher(author.place.rpartition("/")[2], author.home, "5.0", 1, (author.posts,), author.rate)
    for broker in brokers:
        own = [author for author in people[KNOWN:] if author.home == broker]
        if own:
            topics, rate = tuple(author.posts for author in own), sum(author.rate for author in own)
            yield Publisher(f"writers-{broker.name}", broker, "5.0", 1, topics, rate)


def _fans(people: Sequence[Author], brokers: Sequence[Broker]) -> Iterator[Publisher]:
    """The readers at a broker like what they read."""
    for broker in brokers:
        read = (author for author in people if any(app.startswith(f"app-{broker.name}-") for app in author.followers))
        yield Publisher(f"fans-{broker.name}", broker, "5.0", 0, tuple(author.likes for author in read), LIKES)


def _readers(people: Sequence[Author], brokers: Sequence[Broker], follows: dict[str, set[int]]) -> Iterator[Subscriber]:
    for app, ranks in follows.items():
        home = next(broker for broker in brokers if app.startswith(f"app-{broker.name}-"))
        yield Subscriber(app, home, "5.0", 1, tuple(people[rank - 1].posts for rank in sorted(ranks)))


def _authors(people: Sequence[Author], brokers: Sequence[Broker]) -> Iterator[Subscriber]:
    """Authors see who likes them."""
    for broker in brokers:
        own = tuple(author.likes for author in people if author.home == broker)
        if own:
            yield Subscriber(f"authors-{broker.name}", broker, "5.0", 0, own)


def _channels(brokers: Sequence[Broker]) -> Iterator[Subscriber]:
    """Screens in every cluster show all posts on a subject, whoever writes them."""
    clusters: dict[str, list[Broker]] = {}
    for broker in brokers:
        clusters.setdefault(broker.cluster, []).append(broker)
    for n, subject in enumerate(SUBJECTS):
        for own in clusters.values():
            home = own[n % len(own)]
            yield Subscriber(f"{subject}-screen-{home.name}", home, "5.0", 0, (f"feed/{subject}/+/posts",))
