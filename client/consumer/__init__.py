"""Consumers: push, lite pull and pull."""
