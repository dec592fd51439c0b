"""The messages of a queue that are pulled and not handled yet."""
