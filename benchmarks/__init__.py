"""What SAPS costs and what it gains, measured against its peers. See README.md in this folder."""
