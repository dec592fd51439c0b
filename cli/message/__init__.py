"""`lockstep message`."""
