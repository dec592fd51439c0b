"""Worlds of groups that read in order without owning queues: FIFO groups, by POP."""
