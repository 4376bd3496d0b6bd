"""Retained messages of the mesh: partitions, their replicas, and notices to them."""
