"""What a user writes: an application, a story, a test of order, settings by name."""
