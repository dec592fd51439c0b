"""Spark sessions, Java, progress."""
