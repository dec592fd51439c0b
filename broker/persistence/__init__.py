"""What a broker keeps in files: durable replies, its store, its tables."""
