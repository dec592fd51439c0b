"""Consumer offsets: on the broker, in a local file, and where a queue begins."""
