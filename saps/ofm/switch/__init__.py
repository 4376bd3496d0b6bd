"""OpenFlow 1.3 switches in software, for tests, the demo and networks without hardware (`saps switches`)."""
