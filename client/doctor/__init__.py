"""Looks at a live cluster and finds what will break order: facts, which `gather` reads, and a table of rules."""
