"""Logs the publications that cut-off brokers miss, and sends them when the cut is over."""
