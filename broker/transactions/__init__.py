"""Half messages that wait for their producer's word, and how they are found again after a start."""
