"""Session replicas: copies of sessions at other brokers, and their adoption when the owner dies (decision 131)."""
