"""Recomputes the SAPS paper's evaluation (2016, section 4)."""
