"""OpenFlow multicast (OFM): topology, trees, flow plans, their reconciliation with switches, the OpenFlow channel."""
