"""The random worlds of fenced and faithful brokers: settings, messages and faults are drawn from a seed."""
