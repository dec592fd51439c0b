"""Jobs on Spark: each module has `transform`, DataFrame to DataFrame, and what reads for it and writes."""
