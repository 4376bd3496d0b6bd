"""The screen fits the terminal and shows what there is to see; the summary tells the verdict."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.console import Console, RenderableType

from examples.common.machine import Processors
from examples.smart_city.glance import Glance, LoopGlance, Observer, TopicGlance
from examples.smart_city.loop import Facts, Mode
from examples.smart_city.run import Run
from examples.smart_city.scene import plan_brokers, smart_city
from examples.smart_city.screen import Screen, milliseconds, spark, status_line
from examples.smart_city.summary import Report, render, report
from saps.topics import matches

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def run_of(count: int) -> Run:
    """A run in which everybody has subscribed and nothing has been published."""
    scene = smart_city(plan_brokers(count), random.Random(1))
    run = Run(scene, 30, 1, external=[("127.0.0.1", 1)] * count)
    for subscriber in scene.subscribers:
        run.recorder.subscribing(subscriber)
        run.recorder.subscribed(subscriber)
    return run


def play(run: Run, *, rounds: int, lose: bool = False) -> None:
    """Every topic published `rounds` times and delivered; what the hospital wants is lost if so wished."""
    for _ in range(rounds):
        for publisher in run.scene.publishers:
            for topic in publisher.topics:
                sequence = run.recorder.publishing(publisher, topic)
                for subscriber in run.scene.subscribers:
                    wanted = any(matches(topic_filter, topic) for topic_filter in subscriber.filters)
                    if wanted and not (lose and subscriber.name == "hospital"):
                        run.recorder.arrived(subscriber, topic, publisher.name, sequence, 0.0012)


def drawn(renderable: RenderableType, width: int, height: int = 25) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get().splitlines()


@pytest.mark.parametrize("brokers", [2, 4, 8, 30])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60), (60, 24)])
async def test_the_screen_fits(brokers: int, width: int, height: int) -> None:
    run = run_of(brokers)
    play(run, rounds=5)
    run.news = [(float(i), f"news {i}: " + "x" * 300) for i in range(20)]
    lines = drawn(Screen(Observer(run).look(1.0)), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "published" in lines[-1], "the totals are never cut off"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
async def test_nothing_is_abbreviated_at_usual_sizes(width: int, height: int) -> None:
    run = run_of(4)
    play(run, rounds=300)
    lines = drawn(Screen(Observer(run).look(1.0)), width, height)
    text = "\n".join(lines)
    assert not [line for line in lines if "…" in line and "junction" not in line], "only the longest filters are"
    for word in ("tokyo/ward1", "tokyo/ward2", "city/+/alert", "other cluster", "disorder 0", "1.2 ms"):
        assert word in text
    if height >= 40:
        assert "ward2-ambulance" in text


async def test_a_glance_reaches_the_display_unaltered() -> None:
    run = run_of(4)
    play(run, rounds=2)
    run.news.append((1.5, "night-shift joins"))
    glance = Observer(run).look(1.0)
    assert msgspec.json.decode(msgspec.json.encode(glance), type=Glance) == glance


TOPIC = TopicGlance("city/ward1/traffic/stadium/gates", "under construction", 79.6, 159.0, 2.0, (2.0, 2.0, 1.4, 1.0))
PAGE = "http://127.0.0.1:31999/"
LOOP = LoopGlance("the Spark job", "decided: the tree is built", TOPIC, (TOPIC.topic,), PAGE)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
async def test_the_loop_has_its_place_on_the_screen(width: int, height: int) -> None:
    run = run_of(6)
    play(run, rounds=5)
    glance = replace(Observer(run).look(1.0), loop=LOOP)
    lines = drawn(Screen(glance), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "published" in lines[-1], "the totals are never cut off"
    row = next(line for line in lines if TOPIC.topic in line)
    for word in ("under construction", "80", "159", "2.00"):
        assert word in row
    assert any("the Spark job decides; decided: the tree is built" in line for line in lines)
    assert any(f"look at {PAGE} " in line for line in lines)
    assert "goes by under construction: 80/s, 2.00 packets between clusters for each" in status_line(glance)
    assert msgspec.json.decode(msgspec.json.encode(glance), type=Glance) == glance


async def test_the_summary_tells_the_loop_and_fails_if_it_did_not_close() -> None:
    run = run_of(6)
    play(run, rounds=2)
    facts = Facts("small", TOPIC.topic, 1.0, 2.96, 2.96, 0.62, 2.0, 1.0, 4.0, 3.0, 5.8, "so", [Mode.ALM, Mode.OFM])
    text = "\n".join(drawn(render(report(run, facts)), 110))
    for words in ("ALM -> OFM", "decided 3.0 s after the rise", "2.00 by ALM, 1.00 by OFM", "links taken: 4.00, 3.00"):
        assert words in text
    assert report(run, facts).sound
    facts.gone_after = None
    assert not report(run, facts).sound
    assert "tree was gone" not in "\n".join(drawn(render(report(run, facts)), 110))


async def test_rates_are_those_of_the_last_seconds() -> None:
    run = run_of(4)
    observer = Observer(run)
    observer.look(0.0)
    for second in range(1, 6):
        play(run, rounds=second)
        glance = observer.look(float(second))
    topics = sum(len(publisher.topics) for publisher in run.scene.publishers)
    assert glance.total.published_rate == pytest.approx(topics * (3 + 4 + 5) / 3)
    assert sum(broker.received_rate for broker in glance.brokers) == pytest.approx(topics * (3 + 4 + 5) / 3)


async def test_the_status_line_has_the_counts() -> None:
    run = run_of(4)
    assert status_line(Observer(run).look(0.0)).startswith("starting the brokers: 4 of 4 brokers up")
    play(run, rounds=1, lose=True)
    total = run.recorder.total
    line = status_line(Observer(run).look(1.0))
    assert f"published {total.published:,}" in line
    assert f"delivered {total.delivered:,} of {total.expected:,}" in line


async def test_the_summary_tells_a_sound_run() -> None:
    run = run_of(4)
    play(run, rounds=300)
    result = report(run)
    assert result.sound
    lines = drawn(render(result), 80)
    assert lines[-1].strip() == "Every message arrived once, and in order."
    assert "…" not in "".join(lines)


async def test_the_summary_tells_what_is_lost() -> None:
    run = run_of(4)
    play(run, rounds=2, lose=True)
    result = report(run)
    assert not result.sound
    assert result.total.lost == result.by_subscriber["hospital"].lost == 4
    text = "\n".join(drawn(render(result), 80))
    assert "lost: city/ward1/alert/medical #1 from ward1-call-centre at hospital" in text
    assert "NOT every message arrived once and in order: 4 lost." in text
    assert msgspec.json.decode(msgspec.json.encode(result), type=Report) == result


async def test_the_verdict_says_what_failed() -> None:
    """Messages that all arrived are not blamed for a slow job, and a machine that is short of processor is named."""
    run = run_of(4)
    play(run, rounds=3)
    run.troubles.append("the Spark job was slow: its decision for a tree did not come within 60 s")
    run.busy = 0.97
    result = report(run, Facts("spark", "stadium/gates", 5.0))
    assert not result.sound
    text = " ".join(" ".join(drawn(render(result), 80)).split())
    assert "the Spark job was slow: its decision for a tree did not come within 60 s" in text
    assert "Every message arrived once, and in order." in text
    assert "The loop did NOT close: the Spark job had not decided for a tree." in text
    assert "This machine was short of processor: 97% of its" in text
    assert "NOT every message" not in text
    run.busy = 0.5
    assert "short of processor" not in " ".join(drawn(render(report(run, result.loop)), 80))


def test_the_machine_tells_how_busy_it_is() -> None:
    processors = Processors()
    ends = time.monotonic() + 0.3
    while time.monotonic() < ends:
        pass
    assert processors.busy is not None
    assert 1 / (os.cpu_count() or 1) - 0.2 <= processors.busy <= 1.0


def test_figures_for_people() -> None:
    assert milliseconds(None) == "-"
    assert milliseconds(0.00125) == "1.2 ms"
    assert spark([0, 1, 2, 4], 3) == "▃▅█"
    assert spark([], 3) == ""


def test_the_display_process_ends_with_its_input() -> None:
    """It gives the terminal back when the sender is gone, whatever the reason."""
    command = [sys.executable, "-m", "examples.smart_city.display"]
    done = subprocess.run(command, input=b"", stdout=subprocess.PIPE, cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 0
