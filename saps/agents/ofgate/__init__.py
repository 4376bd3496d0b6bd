"""OFGate: the agent between the brokers and the OpenFlow controller."""
