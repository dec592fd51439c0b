"""What broker and client share on asyncio: the endpoint of a connection, the Runtime door, settings, logs."""
