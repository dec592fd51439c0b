"""Limits for peers: connections, requests under way, requests a second."""
