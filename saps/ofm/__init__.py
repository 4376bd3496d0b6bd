"""OpenFlow multicast (OFM): topology, trees, flow plans, their reconciliation with switches, and the OpenFlow
channel."""
