"""What a process takes from its machine: clocks, files, the Runtime; and the same by hand for tests."""
