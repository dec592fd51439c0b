"""Messages in memory: a log of segments and its queues."""
