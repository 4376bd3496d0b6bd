"""What was acknowledged comes to all subscribers, whichever brokers die, those of its publishers among them."""

from __future__ import annotations

from functools import partial

import pytest

from saps.messages import Message
from saps.overlay.missed import returned
from saps.routing.batch import Batch
from tests import marks
from tests.drawn import kept
from tests.overlay.replicated import Replicated
from tests.overlay.roams import Nomad
from tests.overlay.settlement import blackout, deaths, disasters, freezes, overload, restarts

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("seed", [4, 25])
def test_a_loss_of_power_everywhere_costs_nothing(seed: int) -> None:
    """A broker that was back before others acknowledged what their sessions never got. 4: a link broke, and what was
    published later overtook what had been missed."""
    blackout(seed)


@pytest.mark.parametrize("seed", kept(0, 2, quick=1))
def test_after_a_loss_of_power_everywhere_a_client_that_roams_finds_its_session(seed: int) -> None:
    """It came to the first broker of five that was back, which had no copy, and was alone: it got a new session."""
    blackout(seed, 5)


def test_the_death_of_any_broker_costs_nothing() -> None:
    deaths(6)


@pytest.mark.parametrize("seed", kept(73, 63, quick=1))
def test_an_orderly_restart_costs_nothing(seed: int) -> None:
    """A broker published to a topic for the first time after it had heard the `Leave`, and before the adoption."""
    restarts(seed)


def test_a_copy_from_the_file_lends_no_stamp_to_an_older_session_beside_it() -> None:
    """Two brokers each took the other's session for the later one, and told each other so without end."""
    restarts(81)


@pytest.mark.parametrize("seed", kept(11, 16, quick=1))
def test_a_holder_that_misses_the_end_of_an_adoption_does_not_adopt_after_a_loss_of_power(seed: int) -> None:
    """The frame that ends its copy is lost with a link. (QoS 2 came twice: what was delivered after the adoption.)"""
    disasters(seed)


@marks.expect("asked again what a broker wants")
@pytest.mark.parametrize("seed", [43])
def test_a_broker_that_answers_late_what_it_wants_does_not_get_what_its_earlier_life_had(seed: int) -> None:
    """The publishers' broker asked it before it could answer, and counted the age of its filters from then."""
    disasters(seed)


@pytest.mark.soak
def test_the_log_of_an_earlier_life_whose_clock_differed_brings_nothing_again() -> None:
    """What had gone to a broker's earlier life seemed to be published after the next one had begun."""
    disasters(59)


@pytest.mark.soak
def test_a_restored_copy_is_adopted_beside_what_a_repaired_file_has_begun_anew() -> None:
    """All lost power during an adoption, and its copy counted as older than the session of a later incarnation."""
    disasters(173)


@marks.expect("holder replaced")
@pytest.mark.parametrize("seed", kept(1, 8, 10, 13, quick=1))
def test_a_broker_that_stood_still_adopts_no_copy_that_others_have_gone_on_with(seed: int) -> None:
    """Its owner had found another holder and never told it; when the owner died, QoS 2 came twice."""
    freezes(seed)


@pytest.mark.parametrize("seed", kept(24, 34, quick=1))
def test_a_broker_that_stood_still_gets_all_in_order(seed: int) -> None:
    """A publisher's broker without links to it did not know that it had missed anything, and sent it what was newer."""
    freezes(seed)


@pytest.mark.parametrize("seed", kept(4, 15, 18, quick=1))
def test_an_overload_locks_no_client_out(seed: int) -> None:
    """4, 18: several heirs of a session had claims with the same stamp, and waited for each other for ever. 15: a claim
    that was repeated got several answers, and began as many migrations (`make chaos` beside other programs)."""
    overload(seed)


def test_a_client_that_comes_back_while_its_session_is_leaving_is_served() -> None:
    """It had a connection to what went to another broker, and got nothing more."""
    restarts(7)


@marks.expect("question for a session that is adopted here")
def test_an_heir_does_not_wait_for_a_broker_that_waits_for_it() -> None:
    overload(25)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 200))
def test_losses_of_power_and_deaths_cost_nothing(seed: int) -> None:
    blackout(seed)
    deaths(seed)
    freezes(seed)
    restarts(seed)
    overload(seed)


def test_after_a_loss_of_power_nothing_overtakes_what_waits_for_slow_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was in the mesh before is owed what was published since the first ones are back (`make chaos`)."""
    monkeypatch.setattr(returned, "SLOWEST", 100.0)
    mesh = Replicated(1, disks=True)
    one, two = mesh.build(2)
    nomad = Nomad.at(two, mesh)
    for broker in (one, two):
        mesh.crash(broker.name)
    one = mesh.restart(one.name, None)
    for number in range(100):
        message = Message("t", b"%02d" % number + bytes(1000), 1)  # the first 50 take some frames
        one.act(partial(mesh.hubs[one].publish, Batch.of(message)))
        if number == 50:
            two = mesh.restart(two.name, one.name)
            two.node.delivery.catch_up.returned._lagging = lambda: True
            mesh.run(0.1)
        mesh.run(0.01)
    mesh.run(5)
    nomad.arrive(two)
    nomad.until(lambda: len(nomad.got[1]) >= 100)
    assert [int(payload[:2]) for payload in nomad.got[1]] == [*range(100)]
