"""A session moves from one broker, the source, to another, the target."""
