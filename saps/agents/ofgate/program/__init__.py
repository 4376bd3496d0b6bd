"""OFGate as a process."""
