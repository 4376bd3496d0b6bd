"""Runs the MQTT frontend on asyncio: listeners, clients, timers, access files."""
