"""Grows, moves and adopts the shared bidirectional trees of OFMs."""
