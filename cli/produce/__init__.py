"""`lockstep produce`."""
