"""The name server, which runs in the process of a broker or alone: routes, registrations, configurations."""
