"""Stateless delivery: receivers as bits of an IPv6 multicast address, on trees that no topic owns."""
