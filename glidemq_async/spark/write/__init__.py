"""The writer of `format("glidemq")`: each row of a DataFrame or a stream becomes a job."""
