"""The Skip Graph overlay: keys, list maintenance, range calls, multicast. Pure: no I/O, no clock."""
