"""Makes tables of decisions, stores them, sends them to OFGate, audits and replays them."""
