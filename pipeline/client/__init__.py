"""A blocking client for Spark's tasks."""
