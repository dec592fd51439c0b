"""The Spark data source: topics as tables and streams."""
