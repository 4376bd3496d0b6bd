"""A broker inside a program of one's own: `saps.Broker` (`docs/embedding.md`)."""
