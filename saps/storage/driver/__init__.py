"""Drives the storage: SQLite files with their marks, PostgreSQL, the writer thread, and the tools that read them."""
