"""`lockstep context`: name servers and defaults of several clusters, each under a name."""
