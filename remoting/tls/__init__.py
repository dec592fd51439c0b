"""TLS below an `Endpoint`: `session.py` moves bytes, `link.py` stands between a transport and a protocol, `port.py`
is the server's end of it, `options.py` makes contexts from files.
"""
