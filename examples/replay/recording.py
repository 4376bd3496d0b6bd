"""Records what a broker delivers: an MQTT 5 client that subscribes, and writes down what comes, when, as it is."""

from __future__ import annotations

import time

from aiomqtt import Message
from paho.mqtt.subscribeoptions import SubscribeOptions

from examples.common.clients import body, connected, while_listening
from examples.common.mesh import Address
from examples.common.program import Program
from examples.replay.tape import MOST, Recorded, Tape


async def record(program: Program, at: Address, tape: Tape) -> None:
    """Fill the tape with what matches its filters, until the curtain. Raises `aiomqtt.MqttError`."""
    wanted = SubscribeOptions(qos=2, retainAsPublished=True, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
    began: float | None = None

    def hear(message: Message) -> None:
        nonlocal began
        began = time.monotonic() if began is None else began
        if len(tape.messages) == MOST:
            program.storage_fault(f"the tape is full: {MOST:,} messages")
            return
        since = round(time.monotonic() - began, 3)
        tape.messages.append(Recorded(since, message.topic.value, message.qos, bool(message.retain), body(message)))

    def status() -> str:
        return f"{len(tape.messages):,} messages recorded"

    async with connected("saps-recorder", at) as client:
        await client.subscribe([(each, wanted) for each in tape.filters])
        program.begin()
        async with program.showing(status, status):
            await while_listening(client, hear, program.until())
