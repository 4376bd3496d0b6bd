"""Checks of a frame's content, sender and ranges before a machine sees it."""
