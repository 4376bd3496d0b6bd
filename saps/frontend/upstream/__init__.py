"""Bridges an existing MQTT broker, the upstream, to the mesh: forwards messages of mapped topics both ways."""
