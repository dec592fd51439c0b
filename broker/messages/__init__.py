"""How messages come in, wait and are found."""
