"""OpenFlow connections on asyncio: the controller's server, switch sessions, roles."""
