"""Tests of reading queues with Spark: events, jobs and other tables."""
