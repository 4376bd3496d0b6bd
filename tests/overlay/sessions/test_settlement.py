"""What was acknowledged comes to all subscribers, whichever brokers die, those of its publishers among them."""

from __future__ import annotations

import pytest

from tests.overlay.settlement import blackout, deaths

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("seed", [4, 25])
def test_a_loss_of_power_everywhere_costs_nothing(seed: int) -> None:
    """A broker that was back before others acknowledged what their sessions never got. 4: a link broke, and what was
    published later overtook what had been missed."""
    blackout(seed)


def test_the_death_of_any_broker_costs_nothing() -> None:
    deaths(6)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 200))
def test_losses_of_power_and_deaths_cost_nothing(seed: int) -> None:
    blackout(seed)
    deaths(seed)
