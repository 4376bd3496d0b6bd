"""The Skip Graph: keys, level 0 (the ring), the upper levels, routing, and repair after a cut."""
