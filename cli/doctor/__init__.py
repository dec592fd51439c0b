"""`lockstep doctor`: looks at a live cluster and says what will break order."""
