"""Frames between brokers: their structs, versions, link-id table, and framing in a TCP stream."""
