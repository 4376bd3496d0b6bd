"""Shared bidirectional trees of OFMs: grown, moved, adopted."""
