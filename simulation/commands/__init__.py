"""`lockstep-sim`: one file of commands for each part of the lab."""
