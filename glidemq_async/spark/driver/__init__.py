"""Spark work as jobs, and jobs from callbacks of the driver."""
