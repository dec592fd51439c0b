"""`lockstep offset`."""
