"""Logins beside the password file, and rights that they bring."""
