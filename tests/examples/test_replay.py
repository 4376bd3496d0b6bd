"""The replay example: the tape, the follower, and the whole command: recorded while it is played."""

from __future__ import annotations

import asyncio
import tempfile
from argparse import Namespace
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import saps
from examples.common.program import Program, settled
from examples.replay.__main__ import OURS
from examples.replay.follow import Follower
from examples.replay.picture import Outcome, draw
from examples.replay.recording import record
from examples.replay.tape import Recorded, Tape, TapeError, load, write
from tests.examples.commands import run_example

MESSAGES = st.builds(
    Recorded,
    st.integers(0, 10_000_000).map(lambda milliseconds: milliseconds / 1000),
    st.text(min_size=1, max_size=20).filter(lambda text: "\x00" not in text),
    st.integers(0, 2),
    st.booleans(),
    st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode()),
)


@settings(max_examples=20)
@given(st.lists(MESSAGES, max_size=20))
def test_a_tape_comes_back_as_it_was(messages: list[Recorded]) -> None:
    tape = Tape("somewhere", ["#"], messages)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tape.xz"
        write(tape, file)
        assert load(file) == tape


def test_what_is_no_tape_is_refused_with_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "tape.xz"
    for content in (b"", b"no xz", OURS.read_bytes()[:2000]):
        file.write_bytes(content)
        with pytest.raises(TapeError, match="no tape"):
            load(file)


def test_our_tape_is_small_and_of_the_smart_city() -> None:
    assert OURS.stat().st_size < 200 * 1024
    tape = load(OURS)
    assert len(tape.messages) > 1000
    assert {topic.split("/")[2] for topic in tape.topics} == {"air", "traffic", "parking", "alert"}
    assert [each.at for each in tape.messages] == sorted(each.at for each in tape.messages)


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)), st.integers(0, 3))
def test_whatever_is_lost_or_late_or_doubled_is_found(order: list[int], lost: set[int], doubled: int) -> None:
    played = {"a": [b"%d" % n for n in range(8)]}
    follower = Follower(played)
    came = [n for n in order if n not in lost]
    for n in came:
        follower.arrived("a", b"%d" % n)
        if n == doubled:
            assert follower.arrived("a", b"%d" % n) is None
    in_place = [n for place, n in enumerate(came) if all(before < n for before in came[:place])]
    faults = follower.faults(["a"])
    assert follower.right == len(in_place)
    assert faults.missing == 8 - len(in_place)
    assert faults.again == len(came) - len(in_place) + (doubled in came)
    assert bool(faults) == (came != list(range(8)) or doubled in came)


def test_equal_payloads_are_told_apart_by_their_place() -> None:
    played: dict[str, list[bytes]] = defaultdict(list)
    played["a"] = [b"on", b"off", b"on", b"on"]
    follower = Follower(played)
    for payload in (b"on", b"off", b"on"):
        follower.arrived("a", payload)
    assert follower.missing(["a"]) == 1
    assert follower.arrived("a", b"on") == 3
    assert not follower.faults(["a"])
    follower.arrived("b", b"on")
    assert follower.faults(["a"]).strange == 1


async def test_what_a_broker_delivers_is_on_the_tape_as_it_was(tmp_path: Path) -> None:
    program = Program(Namespace(plain=True, seconds=60.0), Console(quiet=True))
    tape = Tape("here", ["a/+", "b"])
    async with saps.Broker("recorded") as broker:
        await broker.publish("b", b"old", qos=1, retain=True)
        host, _, port = broker.mqtt.rpartition(":")
        recording = asyncio.create_task(record(program, (host, int(port)), tape))
        await program.beginning()
        sent = [(f"a/{n % 3}", bytes([n, 255]), n % 3, n == 4) for n in range(20)]
        for topic, payload, qos, retain in sent:
            await broker.publish(topic, payload, qos=qos, retain=retain)
        await broker.publish("c", b"not wanted", qos=1)
        assert await settled(lambda: len(tape.messages) == len(sent))
        program.curtain.set()
        await recording
    for topic in ("a/0", "a/1", "a/2"):
        here = [(each.topic, each.payload, each.qos, each.retain) for each in tape.messages if each.topic == topic]
        assert here == [each for each in sent if each[0] == topic]


@pytest.mark.network
def test_a_tape_is_played_without_a_gap_and_in_order(tmp_path: Path) -> None:
    done, result = run_example("replay", Outcome, tmp_path, "play", "--speed", "4", "--seconds", "10")
    assert done.returncode == 0, done.stdout + done.stderr
    assert result.problems == []
    assert result.played == result.messages > 1000
    assert sum(each.right for each in result.heard) == 2 * result.played
    assert (tmp_path / "picture.svg").read_text() == draw(result).svg()
