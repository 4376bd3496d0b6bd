"""Session migration from one broker, the source, to another, the target."""
