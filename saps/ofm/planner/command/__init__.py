"""What `saps plan` reads, writes, explains and draws."""
