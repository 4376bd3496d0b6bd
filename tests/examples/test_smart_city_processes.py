"""Broker processes are started, watched and ended; real processes throughout."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from examples.smart_city.processes import PORTS, BrokerError, BrokerProcess, free_ports, saps_broker, stop_all

ROOT = Path(__file__).resolve().parents[2]
READY = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); print('ready at 1', flush=True); "
PAUSE = "\nwhile True: signal.pause()"


def python(code: str) -> BrokerProcess:
    return BrokerProcess("b9", [sys.executable, "-c", code])


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_broker_is_ready_and_ends_on_sigterm() -> None:
    broker = python(READY + PAUSE)
    async with broker:
        assert broker.running
        assert broker.ready_line == "ready at 1"
        pid = broker.pid
    assert pid is not None
    assert broker.exit_status == 0
    assert not is_there(pid)


async def test_a_broker_that_fails_to_start_shows_its_own_words() -> None:
    broker = python("import sys; sys.exit('b9: mqtt: 127.0.0.1:1883: address in use')")
    with pytest.raises(BrokerError) as caught:
        await broker.start()
    first, *words = str(caught.value).splitlines()
    assert first == "broker b9 did not start, exit status 1; its last output:"
    assert [word.strip() for word in words] == ["b9: mqtt: 127.0.0.1:1883: address in use"]


async def test_a_silent_broker_is_given_up_and_killed() -> None:
    broker = python("import signal; signal.pause()")
    with pytest.raises(BrokerError, match=r"broker b9 was not ready after 0\.3 s"):
        await broker.start(seconds=0.3)
    assert not broker.running
    assert broker.exit_status == -signal.SIGKILL


async def test_a_command_that_is_not_there_is_an_error_of_the_broker() -> None:
    with pytest.raises(BrokerError, match="broker b9"):
        await BrokerProcess("b9", ["/no/such/program"]).start()


async def test_a_broker_that_ignores_sigterm_is_killed() -> None:
    broker = python("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)" + PAUSE)
    await broker.start()
    assert await broker.stop(seconds=0.3) == -signal.SIGKILL


async def test_an_end_during_the_run_is_noticed() -> None:
    broker = python(READY + PAUSE)
    await broker.start()
    broker.signal(signal.SIGKILL)
    assert str(await broker.ended_unasked()).startswith("broker b9 ended during the run, killed by SIGKILL")


async def test_stopping_twice_or_without_a_start_is_harmless() -> None:
    broker = python(READY + PAUSE)
    assert await broker.stop() is None
    broker = python(READY + PAUSE)
    await broker.start()
    assert await broker.stop() == 0
    assert await broker.stop() == 0


async def test_all_are_stopped_and_those_that_do_not_stop_in_order_are_named() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)" + PAUSE
    good, bad, crashed, idle = python(READY + PAUSE), python(deaf), python(READY + PAUSE), python(READY + PAUSE)
    for broker in (good, bad, crashed):
        await broker.start()
    crashed.signal(signal.SIGKILL)
    await crashed.ended_unasked()
    assert await stop_all([good, bad, crashed, idle], seconds=1) == [
        "broker b9 did not stop in order, killed by SIGKILL"
    ]
    assert not any(broker.running for broker in (good, bad, crashed, idle))
    assert good.exit_status == 0


def test_saps_broker_takes_only_its_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPS_MQTT", "0.0.0.0:1")
    broker = saps_broker("b2", "tokyo/ward2", "127.0.0.1:2", "127.0.0.1:3", join=["127.0.0.1:4"])
    flags = dict(zip(broker.command[2::2], broker.command[3::2], strict=True))
    assert flags == {
        "--name": "b2",
        "--cluster": "tokyo/ward2",
        "--mqtt": "127.0.0.1:2",
        "--overlay": "127.0.0.1:3",
        "--join": "127.0.0.1:4",
    }
    assert "SAPS_MQTT" not in broker.environment


def test_free_ports_differ_and_can_be_listened_on() -> None:
    ports = free_ports(20, random.Random(5))
    assert len(set(ports)) == 20
    assert all(port in PORTS for port in ports)
    for port in ports:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()


def test_a_port_in_use_is_not_free() -> None:
    port = random.Random(9).sample(PORTS, len(PORTS))[0]
    with socket.create_server(("127.0.0.1", port)):
        assert free_ports(1, random.Random(9)) != [port]


def test_a_port_given_out_is_not_free_in_any_process() -> None:
    ports = free_ports(1, random.Random(7))
    assert free_ports(1, random.Random(7)) != ports
    again = (
        "import random; from examples.smart_city.processes import free_ports; print(free_ports(1, random.Random(7)))"
    )
    assert subprocess.check_output([sys.executable, "-c", again], cwd=ROOT, text=True) != f"{ports}\n"
