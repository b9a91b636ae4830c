"""Measures the cost of the queue next to a bare streams loop and a naive library in the same run: `make bench`."""
