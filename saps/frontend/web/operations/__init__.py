"""The Web side of `saps.operations`: clients, bans, retained messages, the audit log, live traces."""
