"""Processes that are forked instead of started: `process.py` asks, `server.py` forks."""
