"""Typed headers of requests and responses."""
