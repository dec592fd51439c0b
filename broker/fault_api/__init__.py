"""The port for tests: clock, faults, and a record of requests."""
