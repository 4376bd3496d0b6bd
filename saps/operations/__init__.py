"""Lets operators find, inspect, disconnect, ban and follow clients, and records in the audit log who did it."""
