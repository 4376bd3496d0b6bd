"""Group keys of OpenFlow multicast: who can read and write a topic's datagrams, and how that changes (decision 084)."""
