"""The lab of ordered consumption: clusters on virtual time, experiments, faults by name, findings."""
