"""The driver side: `SparkExecutor` runs jobs as Spark work, and callbacks of streaming queries add jobs."""
