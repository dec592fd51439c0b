"""What survives a crash: group commit, checkpoint, recovery, repair."""
