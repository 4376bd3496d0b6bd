"""A broker inside another program: `saps.Broker` (`docs/embedding.md`)."""
