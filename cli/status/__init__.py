"""`lockstep status`: one look at a cluster, and what is not well."""
