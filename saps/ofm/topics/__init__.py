"""Topics for switches: the tree of registered topics, their binary codes, IPv6 addresses, aggregated flow entries."""
