"""The controller's northbound interface: REST between OFGate and the OFC.

`schema` defines the messages and `openapi` makes the document from them. `server` answers requests, `client` sends
them.
"""
