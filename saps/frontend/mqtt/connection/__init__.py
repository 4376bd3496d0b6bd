"""Handles one MQTT connection: CONNECT, publish, subscribe, outbound half, flow control."""
