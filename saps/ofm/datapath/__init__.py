"""The OFM data path of one broker: turns publications into datagrams along a tree, and back."""
