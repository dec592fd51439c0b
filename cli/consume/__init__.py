"""`lockstep consume`: a listener of a group that prints, or a reader of one queue."""
