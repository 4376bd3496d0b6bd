"""OFM at one broker: publications to datagrams along a tree, and back."""
