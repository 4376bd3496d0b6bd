"""Group keys of OpenFlow multicast: decide which brokers can read and write a topic's datagrams (decision 084)."""
