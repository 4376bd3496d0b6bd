"""The commands that ask a broker at its Web port."""
