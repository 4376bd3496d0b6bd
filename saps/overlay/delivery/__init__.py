"""Carries publications between brokers: multicast tree, order, acknowledgements, repair."""
