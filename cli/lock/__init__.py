"""`lockstep lock`."""
