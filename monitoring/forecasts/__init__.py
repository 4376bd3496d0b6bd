"""What a topic's traffic will be, and how good that forecast is."""
