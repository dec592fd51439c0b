"""Traces: their format, their writer, their reader, and how several are merged on one time axis."""
