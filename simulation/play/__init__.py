"""A run that a person watches and touches."""
