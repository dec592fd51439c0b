"""Producers: ordered and unordered sends, transactions, requests with answers."""
