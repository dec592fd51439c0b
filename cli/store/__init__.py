"""`lockstep store`."""
