"""``python -m saps``: the command `saps`."""

from saps.cli import main

if __name__ == "__main__":
    main()
