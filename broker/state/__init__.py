"""The state of a broker: plain synchronous tables that take the time as an argument."""
