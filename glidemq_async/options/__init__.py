"""The options of a job and their validation."""
