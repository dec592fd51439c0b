"""Strategies that share a topic's queues among the members of a group."""
