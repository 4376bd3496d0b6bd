"""A broker as a process: joins overlay node, hub, frontends, storage and status."""
