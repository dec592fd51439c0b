"""The name server that a broker carries: routes, registrations, configurations."""
