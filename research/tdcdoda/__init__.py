"""Recomputes the TD-CD-ODA paper's tables (2017)."""
