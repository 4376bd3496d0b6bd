"""Brokers that join, leave, fail and are watched."""
