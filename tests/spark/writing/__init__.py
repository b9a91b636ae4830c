"""Tests of writing to queues from Spark."""
