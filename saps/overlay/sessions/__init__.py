"""Sessions in the mesh: one broker each; directory, migration, replicas."""
