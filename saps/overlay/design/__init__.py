"""Topic-connected overlays (TCO): which links to make so that each topic's nodes are connected by themselves. Pure."""
