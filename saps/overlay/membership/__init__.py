"""Membership: how brokers start, join, leave and fail, and how a broker detects that."""
