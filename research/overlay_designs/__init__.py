"""Overlay designs from the literature and our own, which `saps reproduce tdcdoda` compares."""
