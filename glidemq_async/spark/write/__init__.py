"""Rows of DataFrames and streams become jobs."""
