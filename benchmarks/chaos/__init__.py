"""Faults on purpose: a mesh of broker processes, a seeded schedule of faults, and devices that check every delivery."""
