"""OpenFlow 1.3 switches in software, as a program (`saps switches`): for networks without root and without hardware.

`wishes` reads what a controller sends, `words` writes what a switch answers, `agent` is the switch's side of a
connection, `bridge` a switch with its ports, `network` several of them joined by links; `sockets`, `program` and `cli`
bring them to the network.
"""
