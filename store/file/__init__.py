"""Messages in RocketMQ's own files: the log, its queues, and what is kept how long."""
