"""RocketMQ's file formats: log records, queue entries, index, checkpoint; bytes and their meaning."""
