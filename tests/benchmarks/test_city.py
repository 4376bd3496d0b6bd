"""The city's rows: a real run whose losses are seen, the page of a kept result, and the arguments."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.city import goals, kept, ours, tables
from benchmarks.city.__main__ import begin, main, orders, parser, status
from benchmarks.city.brokers import BASE, Broker, Floor, Mosquitto
from benchmarks.city.kept import Kept, Party, Result, Sample
from benchmarks.city.measure import Pace, sample
from benchmarks.city.ours import OWN, SAPS, Saps, features
from benchmarks.city.page import write
from benchmarks.city.plan import plan
from benchmarks.city.rows import ALL, NAMES, Row
from benchmarks.city.run import rate_of, run, turns
from benchmarks.city.traffic import Traffic
from benchmarks.machine import this_machine

PACE = Pace(0.1, 0.3, pin=False)

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def few() -> Traffic:
    """Ten publishers, a subscriber to everything and one for each topic."""
    topics = tuple(f"city/{i}" for i in range(10))
    return Traffic(topics, ("#", *topics), 10)


def counted(broker: Broker, row: Row, rate: float = 0.0) -> Result:
    """A sample that succeeds."""
    found = sample(row, broker, 0, PACE, rate)
    assert found.result is not None, found.fault
    return found.result


def result(*, deliveries: int = 1000, cpu: float = 0.01, lost: int = 0, doubled: int = 0, wrong: int = 0) -> Result:
    """A made-up one, of a second."""
    return Result(
        seconds=1.0,
        messages=deliveries,
        deliveries=deliveries,
        lost=lost,
        doubled=doubled,
        disordered=0,
        wrong=wrong,
        refused=0,
        unacknowledged=0,
        given_up=0,
        user=cpu / 2,
        system=cpu / 2,
        generator_user=0.1,
        generator_system=0.2,
        foreign=0.05,
        p50=0.001,
        p99=0.002,
        p999=0.003,
    )


def run_of(*samples: Sample) -> Kept:
    """A run that has been kept."""
    return Kept(
        date="2026-11-23 06:00 UTC",
        command="python -m benchmarks.city",
        machine=this_machine(),
        rounds=2,
        seconds=1.5,
        warm=0.3,
        pinned=True,
        parties=[
            Party(name=BASE, version="2.0", settings="x"),
            Party(name=SAPS, version="0.1", settings="y"),
            Party(name="aedes", version=None, settings="z", why="npm: offline"),
        ],
        refusals=[("telemetry-1-q0", "Zenoh", "speaks no MQTT")],
        samples=list(samples),
    )


@needs_compiler
@pytest.mark.interop
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [4, 5])
def test_the_floor_loses_nothing_and_doubles_nothing(qos: int, version: int) -> None:
    row = Row("few", "telemetry", few, qos, version=version, properties=version == 5)
    found = counted(Floor(), row)
    assert found.deliveries > 0
    assert (found.lost, found.doubled, found.wrong, found.unacknowledged) == (0, 0, 0, 0)


@needs_compiler
@pytest.mark.interop
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(("fault", "every"), [("drop", "97"), ("double", "7")])
def test_a_relay_that_drops_or_doubles_messages_is_found_out(fault: str, every: str, qos: int) -> None:
    found = counted(Floor(fault, every), Row("few", "telemetry", few, qos, window=10))
    assert (found.lost > 0, found.doubled > 0) == (fault == "drop", fault == "double")


@needs_compiler
@pytest.mark.interop
def test_between_brokers_shared_in_the_open_loop_and_connections_are_counted() -> None:
    assert counted(Floor(), Row("few", "telemetry", few, 1, between=True)).deliveries > 0
    paced = counted(Floor(), Row("few", "open", few, 0), rate=500)
    assert paced.lost == 0
    assert 0 < paced.p50 <= paced.p99 <= paced.p999
    group = Row("few", "emq", lambda: Traffic(("a/1", "a/2"), ("$share/g/a/#",) * 3, 2), 1, version=5)
    one_each = counted(Floor(), group)
    assert (one_each.lost, one_each.doubled) == (0, 0)
    assert one_each.deliveries <= one_each.messages + 6
    connections = counted(Floor(), NAMES["emq-connections"], rate=200)
    assert connections.deliveries > 0
    assert connections.lost == 0


@needs_compiler
@pytest.mark.interop
@pytest.mark.skipif(not OWN.exists(), reason="SAPS is not installed")
@pytest.mark.parametrize("between", [False, True])
def test_saps_carries_a_row(between: bool) -> None:
    found = counted(Saps(), Row("few", "telemetry", few, 1, version=5, properties=True, between=between))
    assert found.deliveries > 0
    assert found.user + found.system > 0
    assert (found.lost, found.doubled, found.wrong, found.refused) == (0, 0, 0, 0)


@needs_compiler
@pytest.mark.interop
@pytest.mark.skipif(not OWN.exists(), reason="SAPS is not installed")
def test_the_row_of_an_openflow_tree_goes_along_it() -> None:
    (tree,) = [broker for broker in features(OWN) if "OpenFlow" in broker.name]
    assert tree.refusal(NAMES["feature-telemetry-1-q0-between"])
    row = NAMES["feature-display-1-w10-q1-between"]
    assert not tree.refusal(row)
    found = counted(tree, row)
    assert (found.lost, found.doubled, found.wrong, found.refused) == (0, 0, 0, 0)


@needs_compiler
@pytest.mark.interop
@pytest.mark.skipif(not OWN.exists(), reason="SAPS is not installed")
def test_a_row_of_a_tree_that_does_not_go_along_it_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "TREED", ("another/topic",))
    (tree,) = [broker for broker in features(OWN) if "OpenFlow" in broker.name]
    found = sample(NAMES["feature-display-1-w10-q0-between"], tree, 0, PACE, 0.0)
    assert found.result is None
    assert "bytes came along the tree" in found.fault


@needs_compiler
def test_a_broker_that_is_not_there_is_a_fault_in_one_line() -> None:
    class Nobody(Broker):
        name = "nobody"

        def launch(self, place: object, row: Row, version: int) -> object:  # type: ignore[override]
            from benchmarks.city.brokers import Site
            from benchmarks.processes import free_port

            return Site(free_port(), free_port())

    found = sample(Row("few", "telemetry", few, 0), Nobody(), 0, PACE, 0.0)
    assert found.result is None
    assert "refused" in found.fault
    assert "\n" not in found.fault


def test_every_row_has_a_plan_and_a_table() -> None:
    assert len(NAMES) == len(ALL)
    for row in ALL:
        assert row.group in tables.TITLES
        lines = plan(row, 1, 2, [3], row.version, 0.0, 0.1, 0.2, 1).splitlines()
        said = [line.split()[0] for line in lines]
        assert said.count("clients") == 1
        assert not row.half_of or row.half_of in NAMES


def test_peers_take_turns_and_guests_come_once() -> None:
    class Guest(Broker):
        name = "guest"

    class Slow(Guest):
        name = "slow"
        slow = True
        guest = False

    row = NAMES["display-100-w1-q0"]
    present = [Mosquitto(), Saps(), Guest(), Slow()]
    found = [(turn.number, turn.broker.name) for turn in turns([row], lambda _: present, 2)]
    assert found == [(0, BASE), (0, SAPS), (0, "guest"), (1, SAPS), (1, BASE)]
    assert len(list(turns([row], lambda _: present, 2, full=True))) == 6


def test_the_open_loop_offers_half_of_what_mosquitto_carried() -> None:
    row = NAMES["open-telemetry-1-q0"]
    have = run_of(Sample(row="telemetry-1-q0", peer=BASE, round=0, result=result(deliveries=5000)))
    assert rate_of(row, have, Mosquitto(), PACE, print) == 2500
    nothing = run_of(Sample(row="telemetry-1-q0", peer=BASE, round=0, result=result(deliveries=0)))
    with pytest.raises(ValueError, match="carried nothing"):
        rate_of(row, nothing, Mosquitto(), PACE, print)


def test_what_has_been_measured_is_not_measured_again(tmp_path: Path) -> None:
    have = run_of(Sample(row="telemetry-1-q0", peer="floor", round=0, result=result()))
    saved: list[int] = []
    run(
        list(turns([NAMES["telemetry-1-q0"]], lambda _: [Floor()], 1)),
        have,
        Mosquitto(),
        PACE,
        lambda k: saved.append(1),
    )
    run(list(turns([NAMES["pairs-q0"]], lambda _: [Floor()], 1)), have, Mosquitto(), PACE, saved.append, minutes=0)  # type: ignore[arg-type]
    assert saved == []
    kept.save(have, tmp_path / "city.json")
    assert kept.load(tmp_path / "city.json") == have
    assert [path.name for path in tmp_path.iterdir()] == ["city.json"]


def test_the_page_shows_ratios_round_by_round_losses_and_reasons(tmp_path: Path) -> None:
    row = "telemetry-1-q0"
    have = run_of(
        Sample(row=row, peer=BASE, round=0, result=result(cpu=0.01)),
        Sample(row=row, peer=SAPS, round=0, result=result(cpu=0.005, deliveries=1000, lost=3)),
        Sample(row=row, peer=BASE, round=1, result=result(cpu=0.02)),
        Sample(row=row, peer=SAPS, round=1, result=result(cpu=0.006, doubled=2)),
        Sample(row="pairs-q0", peer=SAPS, round=0, fault="no | answer"),
    )
    target = tmp_path / "performance.md"
    target.write_text("# Performance\n\n<!-- goals:begin -->\n<!-- goals:end -->\n\nBetween.\n")
    write(have, target)
    text = target.read_text()
    assert "|telemetry-1-q0|15.00/1.0|5.50/1.0|0.40 (0.30-0.50)|1.00 Mosquitto|SAPS 3+2|30%|" in text
    assert "- pairs-q0, SAPS, failed: no | answer" in text
    assert "- Zenoh (telemetry): speaks no MQTT." in text
    assert "aedes: not measured, npm: offline." in text
    assert "| CPU 0.7 of Mosquitto's: telemetry, QoS 0 (aim) | 1 of 1 | telemetry-1-q0 0.40 |  |  |" in text
    assert "| SAPS loses, duplicates and changes nothing | **0 of 2** | telemetry-1-q0 5 messages, 0 failed," in text
    assert text.index("goals:end") < text.index("Between.") < text.index("rows:begin")
    assert status(have) == 1


def test_goals_that_are_not_measured_say_so() -> None:
    lines = list(goals.goals(run_of()))
    assert all("not measured" in line for line in lines[2:])


@pytest.mark.parametrize(
    "words",
    [
        ["--rows", "nothing-*"],
        ["--peers", "Nobody"],
        ["--rounds", "0"],
        ["--seconds", "0.01"],
        ["--saps", "x=/no/such/program"],
        ["--saps", "x"],
        ["--resume"],
    ],
)
def test_a_wrong_argument_ends_the_program(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_a_run_says_the_command_that_repeats_it_and_goes_on_with_the_same_times_only(tmp_path: Path) -> None:
    file = tmp_path / "city.json"
    words = ["--rows", "pairs-*", "--peers", "floor", "--json", str(file), "--saps", f"x={sys.executable}"]
    chosen = parser().parse_args(words)
    wanted = orders(parser(), chosen)
    first = begin(wanted, chosen, words)
    assert first.command == "python -m benchmarks.city --rows 'pairs-*' --peers floor --saps x=PROGRAM"
    assert {row.name for row in wanted.rows} == {"pairs-q0", "pairs-q1", "pairs-q0-between", "pairs-q1-between"}
    kept.save(first, file)
    chosen = parser().parse_args([*words, "--resume"])
    assert begin(orders(parser(), chosen), chosen, words).samples == []
    chosen = parser().parse_args([*words, "--resume", "--seconds", "3"])
    with pytest.raises(ValueError, match="other --seconds"):
        begin(orders(parser(), chosen), chosen, words)


def test_a_kept_result_becomes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, target = tmp_path / "city.json", tmp_path / "page.md"
    kept.save(run_of(Sample(row="pairs-q0", peer=BASE, round=0, result=result())), file)
    assert main(["--from", str(file), "--markdown", str(target)]) == 0
    assert "|pairs-q0|10.00/1.0|" in target.read_text()
    file.write_bytes(msgspec.json.encode({"date": 1}))
    assert main(["--from", str(file)]) == 2
    assert capsys.readouterr().err.startswith("cannot go on")
    assert main(["--from", os.fspath(tmp_path / "none")]) == 2
