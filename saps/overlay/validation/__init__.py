"""Checks the content, the sender and the ranges of a frame before a state machine handles it."""
