"""The command `saps doctor`: checks of this machine, its files and its broker."""
