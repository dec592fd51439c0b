"""The search for broken order: many seeds of one experiment."""
