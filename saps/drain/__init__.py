"""Drains a broker: redirects its clients, moves its sessions to other brokers, and then has it leave the mesh."""
