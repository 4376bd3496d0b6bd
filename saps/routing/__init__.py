"""The local half of a broker, without the mesh: batches, the hub, subscriptions, retained messages."""
