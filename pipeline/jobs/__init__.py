"""Jobs on Spark: each module has `transform`, DataFrame to DataFrame, and functions that read and write."""
