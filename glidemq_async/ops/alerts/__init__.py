"""Alerts: rules about queues that are evaluated here, their episodes, and notifications by webhook."""
