"""The client of administrators."""
