"""Metrics for Prometheus: what the broker counts, a copy of it in steps, and the port that serves the text."""
