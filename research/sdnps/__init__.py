"""The SDNPS paper's evaluation (2016, section 5), recomputed and measured on Open vSwitch."""
