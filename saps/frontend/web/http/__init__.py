"""The HTTP server: routes, access, problems, OpenAPI."""
