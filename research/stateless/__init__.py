"""Stateless delivery, counted: entries of switches and copies on links, beside a tree for each topic."""
