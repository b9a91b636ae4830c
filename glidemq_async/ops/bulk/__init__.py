"""Bulk operations: one change to all jobs that match a filter, in the background."""
