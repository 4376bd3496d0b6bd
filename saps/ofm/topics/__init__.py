"""Topics for switches: the tree of registered topics, their binary codes, IPv6 addresses and aggregated flow
entries."""
