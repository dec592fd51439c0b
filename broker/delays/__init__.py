"""Delay levels: what is delivered when, also after a kill."""
