"""Tests of the Spark integration. They need Java and run separately from the other tests (`make test` runs both)."""
