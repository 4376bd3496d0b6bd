"""The controller's northbound interface: REST between OFGate and the OFC.

`schema` is what travels, `openapi` the document made from it; `server` answers, `client` asks.
"""
