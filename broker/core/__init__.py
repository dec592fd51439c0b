"""What a broker does, apart from how it is asked."""
