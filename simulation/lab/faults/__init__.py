"""The faults of the lab: their names, their amounts, how they are played, and how a seed draws them."""
