"""`lockstep trace`."""
