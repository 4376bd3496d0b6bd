"""Policies (SDNPS's "strategy"): the clusters that must not carry a topic, and the brokers that must not receive it."""
