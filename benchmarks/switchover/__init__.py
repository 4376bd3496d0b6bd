"""Topics moved between ALM and OFM while they are live, on real processes and Open vSwitch, and what faults cost."""
