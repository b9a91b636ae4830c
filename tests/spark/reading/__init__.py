"""What Spark reads: events, jobs and what else a queue holds."""
