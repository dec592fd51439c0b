"""Transactions: the table of half messages, and its state after a restart."""
