"""Defines the frames between brokers: their structs, versions, link ids, and framing in a TCP stream."""
