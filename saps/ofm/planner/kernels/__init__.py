"""Compiled loops that planners share."""
