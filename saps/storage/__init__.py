"""Stores a broker's state durably: a journal of changes, and the SQLite file or PostgreSQL rows it is written to."""
