"""The Skip Graph: keys, level 0 (the ring), the levels above, routing, and repair after a cut."""
