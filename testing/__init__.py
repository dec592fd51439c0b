"""Broker processes for tests, and the pytest plugin."""
