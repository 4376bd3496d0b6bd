"""MQTT packets: bytes to values and batches, and back."""
