"""What Spark is measured for: a part of the benchmarks of its own, for it needs Java and takes minutes to be warm."""
