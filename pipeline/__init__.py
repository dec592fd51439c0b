"""PySpark data sources for topics on a blocking client, and jobs that use them."""
