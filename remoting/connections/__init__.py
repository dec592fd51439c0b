"""A connection from its states and bytes to its endpoint on asyncio, and the dialer that opens it."""
