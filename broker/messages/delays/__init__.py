"""Delayed messages: levels, delivery, and the state after a crash."""
