"""What came of the feed: by class of popularity and by topic, as values, as a table and as a picture."""

from __future__ import annotations

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.common.drawing import COLOURS, QUIET, Axes, Picture
from examples.common.program import Result
from examples.smart_city.recorder import Tally
from examples.smart_city.run import Run
from examples.smart_city.summary import Counts, counts
from examples.smart_city.traffic import Sums
from examples.social_feed.feed import CLASSES, Author, Feed, class_of
from examples.social_feed.trees import Trees

PLAIN, TREE = COLOURS[5], COLOURS[1]
ALWAYS = (0.0, float("inf"))


class Topic(msgspec.Struct, frozen=True):
    """One author's posts."""

    rank: int
    followers: int
    clusters: int
    """Other clusters that want them."""
    published: int
    fan_out: float
    """Deliveries for each post."""
    lost: int
    p50: float | None
    """Milliseconds, as `p99`."""
    p99: float | None
    decided: float | None
    """Seconds until a tree was decided, if one was."""
    in_use: float | None
    by_tree: float
    """The share of the posts that went by it."""
    reason: str


class Outcome(Result, kw_only=True):
    """What came of the run."""

    seconds: float
    ofm: bool
    total: Counts
    classes: dict[str, Counts]
    topics: list[Topic]
    other_trees: list[str]
    """Topics with trees that are no author's posts."""
    scarce: dict[int, list[str]]
    """The topics that would be left with room for so many trees, by the same counts."""


def outcome(feed: Feed, run: Run, trees: Trees, scarce: dict[int, list[str]]) -> Outcome:
    """The result of a run that is over."""
    recorder = run.recorder
    carried = trees.counted.between(*ALWAYS) if trees.counted is not None else {}
    topics = [
        _topic(feed, author, recorder.groups.get(author.posts) or Tally(), trees, carried) for author in feed.authors
    ]
    posts = {author.posts for author in feed.authors}
    problems = [*run.troubles, *(str(fault) for fault in recorder.faults())]
    problems += [
        f"{topic} got a tree, though no two other clusters want it"
        for topic in trees.decided
        if feed.clusters_of(topic) < 2
    ]
    if trees.counted is not None and not trees.decided and not run.interrupted:
        problems.append("no topic got a tree")
    return Outcome(
        seconds=round(run.elapsed, 2),
        ofm=trees.counted is not None,
        total=counts(recorder.total),
        classes={name: counts(_together(recorder.groups, name)) for name in CLASSES},
        topics=topics,
        other_trees=sorted(set(trees.decided) - posts),
        scarce=scarce,
        problems=problems,
    )


def _topic(feed: Feed, author: Author, tally: Tally, trees: Trees, carried: dict[str, Sums]) -> Topic:
    found, decided, sums = counts(tally), trees.decided.get(author.posts), carried.get(author.posts, Sums())
    return Topic(
        rank=author.rank,
        followers=len(author.followers),
        clusters=feed.clusters_of(author.posts),
        published=found.published,
        fan_out=round(found.delivered / found.published, 2) if found.published else 0.0,
        lost=found.lost,
        p50=found.p50,
        p99=found.p99,
        decided=decided.after if decided is not None else None,
        in_use=decided.in_use if decided is not None else None,
        by_tree=round(sums.by_tree / sums.messages, 3) if sums.messages else 0.0,
        reason=decided.reason if decided is not None else "",
    )


def _together(groups: dict[str, Tally], name: str) -> Tally:
    """The tallies of all topics of a class, added up."""
    whole = Tally()
    for topic, tally in groups.items():
        if class_of(topic) == name:
            for field in ("published", "expected", "delivered", "early", "duplicated", "out_of_order", "stray"):
                setattr(whole, field, getattr(whole, field) + getattr(tally, field))
            whole.latencies.absorb(tally.latencies)
    return whole


def status(run: Run, trees: Trees) -> str:
    """The run now, in a line."""
    total = run.recorder.total
    return (
        f"{run.phase}: {total.published:,} published, {total.delivered:,} delivered, {total.missing:,} under way, "
        f"{len(trees.decided)} trees"
    )


def render(result: Outcome) -> RenderableType:
    """The result for people."""
    shown = Table(box=SIMPLE_HEAD, show_edge=False, padding=0)
    shown.add_column("topics", no_wrap=True)
    for name in ("published", "delivered", "fan-out", "lost", "dup.", "disorder", "p50 ms", "p99 ms", "trees"):
        shown.add_column(name, justify="right", no_wrap=True)
    for name, part in result.classes.items():
        _add(shown, name, part, _with_trees(result, name))
    shown.add_section()
    _add(
        shown,
        "all",
        result.total,
        str(sum(each.decided is not None for each in result.topics) + len(result.other_trees)),
    )
    top = Table(
        "author",
        "followers",
        "other clusters",
        "fan-out",
        "tree decided",
        "in use",
        "by tree",
        box=SIMPLE_HEAD,
        show_edge=False,
    )
    for each in result.topics[:8]:
        top.add_row(
            f"no. {each.rank}",
            str(each.followers),
            str(each.clusters),
            f"{each.fan_out:.1f}",
            _seconds(each.decided),
            _seconds(each.in_use),
            f"{100 * each.by_tree:.0f} %",
            style="bold" if each.decided is not None else "",
        )
    words = [
        Text(f"With room for {room} in each switch: {', '.join(topics) or 'none'}", "dim")
        for room, topics in result.scarce.items()
    ]
    why = next((each.reason for each in result.topics if each.reason), "")
    if why:
        words.append(Text(f"Why: {why}", "dim"))
    if not result.problems and result.total.delivered:
        words.append(Text("Every message arrived once, and in order.", "green"))
    return Group(shown, Text(), top, *words)


def _with_trees(result: Outcome, name: str) -> str:
    if name == "likes":
        return str(len(result.other_trees))
    return str(sum(each.decided is not None and class_of(f"u{each.rank}/posts") == name for each in result.topics))


def _add(table: Table, name: str, part: Counts, trees: str) -> None:
    fan_out = f"{part.delivered / part.published:.1f}" if part.published else "-"
    latencies = ("-" if value is None else f"{value:.1f}" for value in (part.p50, part.p99))
    faults = (str(count) for count in (part.lost, part.duplicated, part.out_of_order))
    table.add_row(name, f"{part.published:,}", f"{part.delivered:,}", fan_out, *faults, *latencies, trees)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def draw(result: Outcome) -> Picture:
    """Deliveries of each author's posts by rank, both logarithmic, with those that got trees."""
    picture = Picture(700, 360, "A social feed: what each author's posts come to")
    deliveries = {each.rank: each.published * each.fan_out for each in result.topics}
    top, last = max([*deliveries.values(), 10]), max([*deliveries, 2])
    least = max(1, min(deliveries.values(), default=1))
    axes = Axes(picture, (70, 60, 460, 240), (1, last), (least, 1.5 * top), log=True)
    axes.frame("rank", "deliveries", "Deliveries of each author's posts")
    for each in result.topics:
        axes.dot(each.rank, max(1.0, deliveries[each.rank]), TREE if each.decided is not None else PLAIN, 4.5)
    picture.circle(550, 80, 4.5, TREE)
    picture.text(562, 84, "decided: a tree", size=11)
    picture.circle(550, 100, 4.5, PLAIN)
    picture.text(562, 104, "stays on ALM", size=11)
    picture.text(550, 130, f"{result.total.delivered:,} deliveries", size=11, colour=QUIET)
    picture.text(550, 146, f"{result.total.lost} lost", size=11, colour=QUIET)
    return picture
