"""Runs the Spark job and its process."""
