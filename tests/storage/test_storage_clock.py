"""A machine's clock that jumps while the broker is down: nothing expires by it, nothing is kept that is really over."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from saps.messages import Message
from saps.routing.batch import Batch as Single
from saps.storage.driver import clock
from saps.storage.driver.clock import LONG, Moment, jump
from saps.storage.driver.database import Database
from saps.storage.journal import Journal, Table
from saps.storage.saved import SavedForm
from tests.storage.conftest import Place
from tests.storage.running import broker, client, subscribed_device, taken

DAYS = 10 * 86_400.0


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        (Moment(1000, "b", 50), Moment(1060, "b", 110), 0),
        (Moment(1000, "b", 50), Moment(1060 + DAYS, "b", 110), DAYS),
        (Moment(1000, "b", 50), Moment(1060 - DAYS, "b", 110), -DAYS),
        (Moment(1000, "b", 50), Moment(1000 + DAYS, "b", 50 + DAYS), 0),
        (Moment(1000, "b", 50), Moment(1060.5, "b", 110), 0),
        (Moment(1000, "b", 50), Moment(1000 + LONG, "c", 20), 0),
        (Moment(1000, "b", 50), Moment(1000 + DAYS, "c", 20), DAYS - 20),
        (Moment(1000, "b", 50), Moment(1000 - DAYS, "c", 20), -DAYS - 20),
        (Moment(1000, "", 50), Moment(1000 + DAYS, "", 110), DAYS - 110),
    ],
    ids=["right", "ahead", "back", "days in one boot", "steered", "boot", "boot, ahead", "boot, back", "no boot told"],
)
def test_what_has_passed_counts_and_no_more(then: Moment, now: Moment, expected: float) -> None:
    assert jump(then, now) == expected


def stored(place: Place, at: Moment) -> float:
    """A file with a session, a will and a message that end at times; what its clock said at the end of it."""
    journal = Journal()
    with closing(Database(place, "off", lambda: at)) as database:
        wall = database.epoch + time.monotonic()
        journal.put(Table.SESSIONS, 1, (1, "c", None, 600, wall + 600, Message("w", b""), 300, wall + 300, 7))
        journal.begin_after(1)
        message = journal.refer(Single.of(Message("t", b"")), wall + 60)
        serial = journal.number()
        journal.put(Table.COPIES, serial, (serial, 1, message.number, 0, SavedForm(1, False, ())))
        database.write(journal.take())
    return wall


@pytest.mark.parametrize("days", [10, -10, 0.1])
@pytest.mark.parametrize("boot", ["same", "other"])
def test_stored_times_move_with_the_clock(
    place: Place, days: float, boot: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Twice: the second start, by the same clock, finds all as the first one left it."""
    wall = stored(place, clock.moment())
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + days * 86_400)
    if boot == "other":
        monkeypatch.setattr(clock, "_boot", lambda: "another")
        monkeypatch.setattr(clock, "_up", lambda: 50.0)
    believed = boot == "other" and days == 0.1
    expected = 0 if believed else days * 86_400 - (50 if boot == "other" else 0)
    for _ in range(2):
        with closing(Database(place, "off")) as database:
            saved = database.load()
        (session,), (message,) = saved.sessions, saved.messages.values()
        assert session.ends is not None
        assert session.will_due is not None
        assert message.expires is not None
        moved = {session.ends - wall - 600, session.will_due - wall - 300, message.expires - wall - 60}
        assert all(abs(found - expected) < 5 for found in moved), moved
    assert caplog.text.count("it has jumped by") == (0 if believed else 1)


@pytest.mark.network
@pytest.mark.parametrize("boot", ["same", "other"])
async def test_a_clock_ten_days_ahead_and_then_right_expires_nothing(
    place: Place, boot: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole process sees the wrong clock: sessions, messages and retained messages with an expiry stay."""
    properties, ahead, right = Properties(PacketTypes.PUBLISH), 0.0, time.time  # type: ignore[no-untyped-call]
    properties.MessageExpiryInterval = 600
    number = 0
    monkeypatch.setattr(time, "time", lambda: right() + ahead)
    if boot == "other":
        monkeypatch.setattr(clock, "_boot", lambda: str(number))
        monkeypatch.setattr(clock, "_up", lambda: 50.0)
    for life, jumped in enumerate([0.0, DAYS, 0.0]):
        number, ahead = life, jumped
        async with broker(place) as running:
            if life == 0:
                await subscribed_device(running)
                async with client(running, "sender") as sender:
                    await sender.publish("a", b"waiting", qos=1, properties=properties)
                    await sender.publish("kept", b"retained", qos=1, retain=True, properties=properties)
            assert list(running.server.frontend.sessions) == ["device"]
            async with client(running, f"fresh{life}") as fresh:
                await fresh.subscribe("kept")
                assert await taken(fresh, 1) == [("kept", b"retained")]
            if life == 2:
                async with client(running, "device", 3600) as device:
                    assert await taken(device, 1) == [("a", b"waiting")]
    assert caplog.text.count("it has jumped by") == 2


@pytest.mark.network
async def test_a_clock_set_right_while_the_broker_runs_expires_nothing_later(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a clock of its own starts in the past, and is put right under way."""
    right, behind = time.time, -DAYS
    monkeypatch.setattr(time, "time", lambda: right() + behind)
    async with broker(place) as running:
        behind = 0.0
        await subscribed_device(running)
    async with broker(place) as running:
        session = running.server.frontend.sessions["device"]
        assert 3500 < session.ends_at - running.server.frontend.clock() <= 3600
