"""The stories: what happens on the stage, and the point of each, computed from what happened."""
