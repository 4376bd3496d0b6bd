"""The command `saps doctor`: checks this machine, its files and its broker."""
