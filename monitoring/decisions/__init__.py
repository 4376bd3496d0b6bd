"""Tables of decisions: made, stored, sent to OFGate, audited, replayed."""
