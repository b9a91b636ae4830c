"""Tests of Spark work as jobs, and of jobs that the driver adds."""
