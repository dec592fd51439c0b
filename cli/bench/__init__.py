"""`lockstep bench`: measures a live cluster with a topic and a group of its own."""
