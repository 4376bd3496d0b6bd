"""Keeps MQTT sessions: state, storage, migration."""
