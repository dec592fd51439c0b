"""The `lockstep-pipeline` command."""
