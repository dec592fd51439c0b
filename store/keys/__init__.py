"""Messages by key: the index in memory and in RocketMQ's index files."""
