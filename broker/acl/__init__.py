"""Who may do what on a broker: accounts, permissions, and the check of each request (docs/security.md)."""
