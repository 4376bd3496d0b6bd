"""A broker as a process: overlay node, hub, frontends, storage and status put together."""
