"""Designs topic-connected overlays (TCO): links that connect the nodes of each topic among themselves. Pure."""
