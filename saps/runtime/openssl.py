"""What the users of `ssl` share: no question for a passphrase, and errors in plain words."""

from __future__ import annotations


def no_passphrase() -> str:
    """Refuse the key of `SSLContext.load_cert_chain`: without such a callback OpenSSL asks on the terminal for the
    passphrase of an encrypted key. Raises `ValueError`."""
    raise ValueError("the key has a passphrase: use a key without one")


def reason_of(error: Exception) -> str:
    """Return the reason that OpenSSL gives for an error, in words; that of any other error as it is."""
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else str(error)
