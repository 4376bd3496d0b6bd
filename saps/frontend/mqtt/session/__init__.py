"""MQTT sessions: state, storage, migration."""
