"""The control port for tests: the clock, faults, and a record of requests."""
