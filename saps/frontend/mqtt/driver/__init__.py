"""The MQTT frontend on asyncio: listeners, clients, timers."""
