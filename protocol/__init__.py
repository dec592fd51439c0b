"""Encodes and decodes the remoting protocol of RocketMQ 4.9.8. Pure: no socket, no clock, no logging."""
