"""The controller as a pure machine; its driver and its program."""
