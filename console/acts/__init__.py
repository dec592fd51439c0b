"""What changes something from a page: topics, groups, offsets, locks, and a message sent by hand."""
