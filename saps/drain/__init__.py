"""Draining a broker: its clients go elsewhere, its sessions go to other brokers, and then it leaves."""
