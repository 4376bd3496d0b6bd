"""What outlives the process: a journal of changes, and the SQLite file it is written to."""
