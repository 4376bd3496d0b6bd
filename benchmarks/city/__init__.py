"""Rows judged by what users have: ``python -m benchmarks.city --help``. See README.md in the folder above."""
