"""The controller as a pure machine, with its driver and its program."""
