"""Recomputes the papers' evaluations with the product's own code: ``saps reproduce``."""
