"""The OpenFlow 1.3 channel of the controller: codec, connection machine, discovery of links and hosts, asyncio server.

Only `ofp`, `encode` and `decode` need the codec library; only `server` and `switch` need an event loop.
"""
