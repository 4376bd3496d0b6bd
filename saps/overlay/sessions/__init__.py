"""Sessions in the mesh, each at one broker: the session directory, session migration and session replicas."""
