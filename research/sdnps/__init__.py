"""Recomputes the SDNPS paper's evaluation (2016, section 5), and measures it on Open vSwitch."""
