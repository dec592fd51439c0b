"""The ways a broker is asked."""
