"""Disks whose power fails: a file system in memory (FUSE), and the process that serves it."""
