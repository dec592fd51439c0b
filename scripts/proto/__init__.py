"""Writes what messages for gRPC look like: `python -m scripts.proto`, after a change of messaging.proto."""
