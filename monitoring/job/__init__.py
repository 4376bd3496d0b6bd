"""The Spark job and its process."""
