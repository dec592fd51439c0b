"""The stories: what happens in a cluster, and the point of each, computed from what happened."""
