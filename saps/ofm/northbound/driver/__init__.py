"""The northbound over HTTP: server, client, the pair of controllers, metrics."""
