"""Tests of Spark work as jobs, and of what the driver adds to queues."""
