"""Connects devices, browsers and other brokers: MQTT, Web, and the bridge to an upstream broker."""
