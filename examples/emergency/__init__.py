"""An alert in one city, heard at once in another, while cameras fill the way between the two: priority topics.

`worlds` is where it happens (two OpenFlow domains on Open vSwitch, or two brokers on this machine), `play` who speaks
when, `result` what is to be told of it; `door` lets clients of this machine attach to brokers inside the lab.
"""
