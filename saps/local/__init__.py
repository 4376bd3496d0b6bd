"""A broker by itself: batches, the hub, local subscriptions, retained messages."""
