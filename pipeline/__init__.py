"""Topics as Spark DataFrames, and jobs on them: PySpark data sources on a blocking client."""
