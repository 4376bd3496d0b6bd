"""The papers' evaluations, computed anew with the product's own code: ``saps reproduce``."""
