"""The fenced lock: which requests a broker refuses, and the parts of the table of locks (docs/fencing.md)."""
