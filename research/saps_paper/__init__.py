"""The SAPS paper's evaluation (2016, section 4), recomputed."""
