"""Agents: named objects on brokers, found by attribute through the overlay."""
