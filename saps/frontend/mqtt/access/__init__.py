"""Decides which clients may connect to this broker, and which topics each client may publish and receive."""
