"""Counts the switches' entries and the copies on links of stateless delivery, beside a tree for each topic."""
