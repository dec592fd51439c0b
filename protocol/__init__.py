"""Bytes and their meaning: RocketMQ 4.9.8's remoting protocol. Pure: no socket, no clock, no logging."""
