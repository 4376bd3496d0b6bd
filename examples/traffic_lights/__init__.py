"""Adaptive traffic lights: junctions tell their queues to their neighbours over the mesh, and decide by max pressure.

`street` is the traffic, `control` decides about lights; `junctions` are the programs on the mesh; `compare` sets the
plans side by side over many seeds; `picture` draws it.
"""
