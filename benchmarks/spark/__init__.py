"""Benchmarks of the Spark integration. They run separately, because they need Java and minutes of warm-up."""
