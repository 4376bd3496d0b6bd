"""Designed overlays of the literature and own ones, as `saps reproduce tdcdoda` compares them."""
