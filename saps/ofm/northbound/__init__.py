"""The controller's northbound interface: REST between OFGate and the OFC, and clients of two kinds of controllers.

`schema` is what travels, `openapi` the document made from it; `server` answers, `client` asks; `ofctl` asks a
controller with Ryu's stock `ofctl_rest` calls for the same things.
"""
