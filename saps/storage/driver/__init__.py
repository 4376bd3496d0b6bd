"""The storage file: SQLite, its marks, its writer thread, and the tools that read it."""
