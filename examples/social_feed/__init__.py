"""A social feed: everybody follows somebody, a few are followed by nearly all, and OFM is for these few.

`feed` says who writes and who follows whom, `trees` runs the OpenFlow side and sees what is decided, `result` is what
comes of it; devices, brokers and the book of all deliveries are those of `examples.smart_city`.
"""
