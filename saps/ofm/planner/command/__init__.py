"""Reads, writes, explains and draws the plans of `saps plan`."""
