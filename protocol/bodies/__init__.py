"""Structured bodies of requests and responses, and their encodings."""
