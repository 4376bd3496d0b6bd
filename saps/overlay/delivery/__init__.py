"""Publications between brokers: multicast tree, order, acknowledgements, repair."""
