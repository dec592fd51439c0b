"""Messages: the stored layout, properties, ids, batches, compression, and replies to pulls."""
