"""Smart-city applications of SAPS; each package is one command, `python -m examples.NAME`."""
