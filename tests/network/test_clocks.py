"""Clocks that are wrong while a broker starts: its next life is its next life all the same."""

from __future__ import annotations

import time

import pytest

from saps.broker import Broker
from saps.config import Address
from tests.network.meshes import Client, mesh, settings

pytestmark = pytest.mark.network

DAY = 86_400_000_000_000


async def test_a_broker_that_began_a_day_ahead_is_let_in_again_with_the_right_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with mesh(2) as brokers:
        contact = Address.parse(brokers[0].ref.address)
        lives = []
        for ahead in (DAY, 0, -DAY, 0):
            with monkeypatch.context() as clock:
                clock.setattr("saps.broker.time.time_ns", lambda ahead=ahead, right=time.time_ns: right() + ahead)
                broker = Broker(settings("again", "c2", [contact]))
                await broker.start()
            try:
                lives.append(broker.ref.incarnation)
                async with Client(broker.server.address) as there, Client(brokers[1].server.address) as here:
                    await there.subscribe("a/b")
                    await here.publish("a/b", b"%d" % len(lives), 1)
                    await there.expect("a/b", b"%d" % len(lives))
            finally:
                await broker.stop()
        assert lives == sorted(set(lives))
