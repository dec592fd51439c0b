"""Timelines of runs: who owned each queue, what each process did, faults and violations, as a page and as text."""
