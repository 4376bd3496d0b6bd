"""Policies (SDNPS's "strategy"): which clusters must not carry a topic, and which brokers must not receive it."""
