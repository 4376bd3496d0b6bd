"""Four clients of one broker that carry a script out, and what each of them got in each step."""

from __future__ import annotations

import asyncio
import contextlib

from benchmarks.differential.scripts import CLIENTS, Act, Script, Step
from saps.frontend.mqtt.codec import packets as mqtt
from saps.frontend.mqtt.codec.decode import decode
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import PacketType
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import MqttError
from saps.frontend.mqtt.codec.wire import Framer, fixed_header

TIMEOUT = 1.0
"""Seconds in which a broker answers PINGREQ if it has understood where the packet before it ends."""
ROUNDS = 3
"""PINGREQ and PINGRESP of every client after a step: as many as QoS 2 has packets to answer."""
SETTLE = 0.005
"""Seconds a broker has to notice that a connection is closed."""
REFUSED = 0x80
"""Reason codes from here on are failures (MQTT 5.0, 2.4)."""

Event = tuple[str, ...]
Got = dict[str, list[Event]]
"""What each client got in one step; of a topic in order."""
PING = encode(mqtt.Pingreq(), mqtt.V311)


class Client:
    """It answers as the standard says, and notes what it gets."""

    def __init__(self, version: int, prefix: str) -> None:
        self._script_version = self._version = version
        self._prefix = prefix
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._pongs: asyncio.Queue[bool] = asyncio.Queue()
        self._greeted = False
        self._aliases: dict[int, str] = {}
        self._begun: dict[int, Event] = {}
        """Messages of QoS 2 whose PUBREL has not come."""
        self.events: list[Event] = []

    @property
    def connected(self) -> bool:
        return self._writer is not None

    async def connect(self, port: int, data: bytes) -> None:
        """A new connection that begins with these bytes. Raises `OSError`."""
        await self.close()
        self._version, self._aliases, self._pongs = _level(data, self._script_version), {}, asyncio.Queue()
        self._greeted = False
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._reading = asyncio.create_task(self._read(reader, self._writer))
        self._writer.write(data)

    def send(self, data: bytes) -> None:
        """Bytes, whatever they mean."""
        assert self._writer is not None
        self._writer.write(data)

    async def close(self) -> None:
        """End the connection without a word."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            assert self._reading is not None
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
            await asyncio.sleep(SETTLE)

    async def ping(self) -> None:
        """Wait until the broker has done all that was sent. If it does not answer, the connection is closed."""
        if self._writer is None:
            return
        with contextlib.suppress(OSError):
            self._writer.write(PING)
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._pongs.get()
        except TimeoutError:
            self.events.append(("waits",))
            await self.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framer = Framer()
        try:
            while data := await reader.read(65536):
                rest, pos = framer.feed(data), 0
                while (bounds := fixed_header(rest, pos)) is not None and bounds[1] <= len(rest):
                    self._take(decode(rest[pos], rest, *bounds, self._version), writer)
                    pos = bounds[1]
                framer.keep(rest, pos)
        except MqttError as error:
            if self._greeted:  # before it nobody knows which version the broker speaks
                self.events.append(("unreadable", str(error)))
        except OSError:
            pass
        self._lost(writer)

    def _lost(self, writer: asyncio.StreamWriter) -> None:
        writer.close()
        self._writer = None
        self.events.append(("closed",))
        self._pongs.put_nowait(False)

    def _take(self, packet: mqtt.Packet, writer: asyncio.StreamWriter) -> None:
        match packet:
            case mqtt.Pingresp():
                self._pongs.put_nowait(True)
            case mqtt.Publish():
                self._arrived(packet, writer)
            case mqtt.Ack():
                self._acknowledged(packet, writer)
            case mqtt.Connack() if not packet.reason:
                self._greeted = True
                self.events.append(("connack", f"session present {int(packet.session_present)}"))
            case mqtt.Suback():
                self.events.append(("suback", str(packet.packet_id), *(_outcome(r) for r in packet.reasons)))
            case mqtt.Unsuback():
                self.events.append(("unsuback", str(packet.packet_id)))

    def _arrived(self, packet: mqtt.Publish, writer: asyncio.StreamWriter) -> None:
        alias = packet.properties.get(Property.TOPIC_ALIAS)
        if alias is not None:
            packet.topic = self._aliases.setdefault(alias, packet.topic) if not packet.topic else packet.topic
            self._aliases[alias] = packet.topic
        if packet.packet_id is not None:
            kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
            writer.write(encode(mqtt.Ack(kind, packet.packet_id), self._version))
        event = (
            *("publish", packet.topic, packet.payload.hex(), f"QoS {packet.qos}", f"retain {int(packet.retain)}"),
            _properties(packet.properties),
        )
        if packet.qos == 2 and packet.packet_id is not None:
            if self._begun.get(packet.packet_id) == event and packet.dup:
                return  # the same once more (4.3.3)
            self._begun[packet.packet_id] = event
        if packet.topic.startswith(self._prefix):
            self.events.append(event)

    def _acknowledged(self, packet: mqtt.Ack, writer: asyncio.StreamWriter) -> None:
        answer = {PacketType.PUBREC: PacketType.PUBREL, PacketType.PUBREL: PacketType.PUBCOMP}.get(packet.type)
        if answer is not None and packet.reason < REFUSED:
            writer.write(encode(mqtt.Ack(answer, packet.packet_id), self._version))
        if packet.type is PacketType.PUBREL:
            self._begun.pop(packet.packet_id, None)
        else:
            self.events.append((packet.type.name.lower(), str(packet.packet_id), _outcome(packet.reason, plain=True)))


def _outcome(reason: int, *, plain: bool = False) -> str:
    return "refused" if reason >= REFUSED else "taken" if plain else f"QoS {reason}"


def _properties(properties: PropertyMap) -> str:
    """Those that come from the publisher, or the subscription (3.3.2.3); the seconds left are not compared."""
    shown = {k: v for k, v in sorted(properties.items()) if k != Property.TOPIC_ALIAS}
    shown = {k: "some" if k == Property.MESSAGE_EXPIRY else v for k, v in shown.items()}
    if ids := shown.get(Property.SUBSCRIPTION_IDENTIFIER):
        shown[Property.SUBSCRIPTION_IDENTIFIER] = tuple(sorted(ids))
    return ", ".join(f"{Property(k).name.lower()}={v!r}" for k, v in shown.items())


def _level(data: bytes, otherwise: int) -> int:
    """The version that a CONNECT asks for."""
    with contextlib.suppress(MqttError, ValueError, AttributeError, KeyError):
        bounds = fixed_header(data, 0)
        if bounds is not None and isinstance(packet := decode(data[0], data, *bounds, otherwise), mqtt.Connect):
            return packet.version
    return otherwise


async def carry_out(script: Script, port: int) -> list[Got]:
    """What each client got at the broker at this port, step by step; nothing any more once the broker has died."""
    clients = {name: Client(script.version, script.prefix) for name in CLIENTS}
    found: list[Got] = []
    try:
        for step in script.steps:
            try:
                await _do(step, clients, script, port)
            except OSError:
                return found
            found.append({name: _sorted(client.events) for name, client in clients.items()})
            for client in clients.values():
                client.events = []
    finally:
        for client in clients.values():
            await client.close()
    return found


async def _do(step: Step, clients: dict[str, Client], script: Script, port: int) -> None:
    client = clients[step.client]
    if step.act is Act.CLOSE:
        await client.close()
    elif step.act is Act.CONNECT:
        await client.connect(port, step.data)
    else:
        if not client.connected:
            await client.connect(port, script.connects[step.client])
            await client.ping()
        if client.connected:
            client.send(step.data)
    for _ in range(ROUNDS):
        await client.ping()
        await asyncio.gather(*(other.ping() for other in clients.values() if other is not client))


def _sorted(events: list[Event]) -> list[Event]:
    """Of a topic in order; answers before publications: brokers may send these in any order (4.6)."""
    return sorted(events, key=lambda event: (event[0] == "publish", event[1:2] if event[0] == "publish" else ()))
