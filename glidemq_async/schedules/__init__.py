"""Schedules and cron expressions: the instants at which a scheduler adds a job."""
