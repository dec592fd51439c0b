"""A simulated machine: its hosts, its clock, its disk."""
