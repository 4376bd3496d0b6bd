"""Joins an existing MQTT broker, the upstream, to the mesh: messages of mapped topics are forwarded both ways."""
