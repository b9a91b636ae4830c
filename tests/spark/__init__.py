"""Tests of the Spark side; they need Java, and run apart from the others (`make test` does both)."""
