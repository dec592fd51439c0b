"""Who owns a queue: locks, fenced locks and what they journal."""
