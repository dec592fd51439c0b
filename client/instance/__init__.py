"""One client and its brokers: connections, routes, heartbeats, name servers."""
