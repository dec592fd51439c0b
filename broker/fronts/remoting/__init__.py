"""Request handlers, one family a module: plain functions of (server, connection, command, now_ms)."""
