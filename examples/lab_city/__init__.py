"""The smart city on a network of real OpenFlow switches: the same scene by ALM, by ALM-LA, while its topics move to OFM
and back, and by OFM, with what each way puts on the links between clusters.

`acts` is the play, `probe` finds out how far messages go, `result` is what comes of it; the scene itself, its devices
and its screen are those of `examples.smart_city`.
"""
