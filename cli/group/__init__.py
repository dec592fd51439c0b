"""`lockstep group`."""
