"""Flows: jobs that start after other jobs, their children, have ended."""
