"""A controller as Ryu's stock applications make it: `ofctl_rest` by the codec library's own copy of its code
(`lib/ofctl_v1_3`), on a bare OpenFlow channel, and `rest_topology` with a network that the test states."""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from aiohttp import web
from os_ken.lib import ofctl_utils, ofctl_v1_3  # type: ignore[import-untyped]
from os_ken.ofproto import ofproto_parser  # type: ignore[import-untyped]
from os_ken.ofproto import ofproto_v1_3 as ofproto
from os_ken.ofproto import ofproto_v1_3_parser as parser

from saps.ofm.topology import Link, Port

ofctl_utils.hub = SimpleNamespace(Event=threading.Event)  # its own event waits for ever if set at the wrong moment


class Datapath:
    """What Ryu's code knows as a switch."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.id: int | None = None
        self.ofproto, self.ofproto_parser = ofproto, parser
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._xids = itertools.count(1)

    def set_xid(self, message: Any) -> None:
        message.set_xid(next(self._xids))

    def close(self) -> None:
        self._writer.close()

    def send_msg(self, message: Any) -> None:
        """May be called from any thread."""
        if message.xid is None:
            self.set_xid(message)
        message.serialize()
        self._loop.call_soon_threadsafe(self._writer.write, bytes(message.buf))


class RyuLike:
    """The controller; `links` and `hosts` are what its topology application would have found."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.hosts: dict[str, Port] = {}
        self.datapaths: dict[int, Datapath] = {}
        self.commands: list[str] = []
        """Changes that were asked for, in order."""
        self._waiters: dict[int, dict[int, tuple[threading.Event, list[Any]]]] = {}

    # ---- switches

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One switch's connection."""
        dp = Datapath(writer)
        dp.send_msg(parser.OFPHello(dp))
        try:
            while True:
                head = await reader.readexactly(8)
                version, kind, length, xid = struct.unpack("!BBHI", head)
                body = await reader.readexactly(length - 8)
                self._message(dp, ofproto_parser.msg(dp, version, kind, length, xid, head + body))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            if dp.id is not None:
                self.datapaths.pop(dp.id, None)
        finally:
            writer.close()

    def _message(self, dp: Datapath, message: Any) -> None:
        if isinstance(message, parser.OFPHello):
            dp.send_msg(parser.OFPFeaturesRequest(dp))
        elif isinstance(message, parser.OFPEchoRequest):
            reply = parser.OFPEchoReply(dp, message.data)
            reply.set_xid(message.xid)
            dp.send_msg(reply)
        elif isinstance(message, parser.OFPSwitchFeatures):
            dp.id = message.datapath_id
            self.datapaths[message.datapath_id] = dp
        elif isinstance(message, parser.OFPMultipartReply) and dp.id is not None:
            waiting = self._waiters.get(dp.id, {})
            if message.xid in waiting:
                lock, messages = waiting[message.xid]
                messages.append(message)
                if not message.flags & ofproto.OFPMPF_REPLY_MORE:
                    del waiting[message.xid]
                    lock.set()

    # ---- calls

    def application(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/stats/switches", self._switches),
                web.get("/stats/{what:desc|portdesc|port|groupdesc|flow}/{dpid}", self._stats),
                web.post("/stats/{what:flow}/{dpid}", self._stats),
                web.post("/stats/{table:flowentry|groupentry}/{command}", self._change),
                web.get("/v1.0/topology/links", self._links),
                web.get("/v1.0/topology/hosts", self._hosts),
            ]
        )
        return app

    async def _switches(self, _request: web.Request) -> web.Response:
        return web.json_response(sorted(self.datapaths))

    async def _stats(self, request: web.Request) -> web.Response:
        dp = self.datapaths.get(int(request.match_info["dpid"]))
        if dp is None:
            return web.Response(status=404)
        calls: dict[str, Callable[..., Any]] = {
            "desc": ofctl_v1_3.get_desc_stats,
            "portdesc": ofctl_v1_3.get_port_desc,
            "port": ofctl_v1_3.get_port_stats,
            "groupdesc": ofctl_v1_3.get_group_desc,
            "flow": ofctl_v1_3.get_flow_stats,
        }
        body = await request.read()
        question = [json.loads(body)] if body else []
        call = calls[request.match_info["what"]]
        return web.json_response(await asyncio.to_thread(call, dp, self._waiters, *question))

    async def _change(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        dp = self.datapaths.get(int(body["dpid"]))
        if dp is None:
            return web.Response(status=404)
        table, command = request.match_info["table"], request.match_info["command"]
        self.commands.append(f"{table}/{command}")
        if table == "flowentry":
            ofctl_v1_3.mod_flow_entry(dp, body, getattr(ofproto, f"OFPFC_{command.upper()}"))
        else:
            ofctl_v1_3.mod_group_entry(dp, body, getattr(ofproto, f"OFPGC_{command.upper()}"))
        return web.Response(status=200)

    async def _links(self, _request: web.Request) -> web.Response:
        ways = [way for link in self.links for way in ((link.a, link.b), (link.b, link.a))]
        return web.json_response([{"src": _port(src), "dst": _port(dst)} for src, dst in ways])

    async def _hosts(self, _request: web.Request) -> web.Response:
        return web.json_response(
            [{"mac": mac, "ipv4": [], "ipv6": [], "port": _port(at)} for mac, at in self.hosts.items()]
        )


def _port(port: Port) -> dict[str, str]:
    return {
        "dpid": f"{port.dpid:016x}",
        "port_no": f"{port.port:08x}",
        "hw_addr": "02:00:00:00:ff:01",
        "name": f"p{port.port}",
    }


@asynccontextmanager
async def ryu_like() -> AsyncIterator[tuple[RyuLike, int, str]]:
    """A running one, with the port for switches and the address for calls."""
    controller = RyuLike()
    server = await asyncio.start_server(controller.serve, "127.0.0.1", 0)
    runner = web.AppRunner(controller.application(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield controller, server.sockets[0].getsockname()[1], f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        server.close()
        for datapath in [*controller.datapaths.values()]:
            datapath.close()
