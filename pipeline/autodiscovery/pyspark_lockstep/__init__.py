"""Spark imports every top-level package named pyspark_* and takes its `DefaultSource`."""

from lockstep.pipeline.source.data_source import LockstepSource as DefaultSource

__all__ = ["DefaultSource"]
