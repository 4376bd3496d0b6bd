"""Web clients: publish and subscribe over HTTP, server-sent events and WebSocket."""
