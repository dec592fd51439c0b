"""`lockstep-broker --brokers N`: a name server and N brokers, each broker in a process of its own."""
