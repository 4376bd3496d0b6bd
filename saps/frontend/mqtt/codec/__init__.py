"""Decodes MQTT packets from bytes into values and batches, and encodes them."""
