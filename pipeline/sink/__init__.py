"""The Spark sink: rows as messages, in order."""
