"""Checks logins by tokens, SCRAM and an HTTP service, and applies the rights that these logins bring."""
