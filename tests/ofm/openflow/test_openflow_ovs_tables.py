"""Any tables can be written to a real Open vSwitch and read back the same, whatever it held before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given

from saps.ofm.flows.reconcile import difference
from saps.ofm.flows.tables import Tables
from saps.ofm.openflow.driver.server import OpenFlowServer
from saps.ofm.openflow.driver.switch import Switch
from tests.ofm.openflow.ovs import needs_ovs, open_vswitch
from tests.ofm.openflow.recorder import Recorder
from tests.ofm.openflow.table_strategies import COOKIE, COOKIE_MASK, tables

pytestmark = [pytest.mark.network, needs_ovs]


@dataclass
class Bench:
    """One switch for all examples, and the loop its connection lives on."""

    runner: asyncio.Runner
    switch: Switch

    def actual(self) -> Tables:
        """What the switch holds of ours."""
        return self.runner.run(self.switch.tables(COOKIE, COOKIE_MASK))

    def reconcile(self, wanted: Tables) -> None:
        """One step of the controller."""
        self.runner.run(self.switch.apply(difference(self.actual(), wanted)))


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with open_vswitch() as ovs, asyncio.Runner() as runner:
        heard = Recorder()
        server = OpenFlowServer("127.0.0.1", 0, heard)
        try:
            ovs.bridge("one", 1, ["p1"], runner.run(server.start()))
            yield Bench(runner, runner.run(heard.connected(1)))
        finally:
            runner.run(server.close())


@given(wanted=tables())
def test_tables_are_read_back_as_they_were_written(bench: Bench, wanted: Tables) -> None:
    bench.reconcile(wanted)
    assert bench.actual() == wanted
    assert difference(bench.actual(), wanted) == []
