"""Forecasts each topic's traffic and measures the forecasts' errors."""
