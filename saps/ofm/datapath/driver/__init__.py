"""UDP sockets of the OFM data path."""
