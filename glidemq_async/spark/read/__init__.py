"""Events, jobs and queues as tables."""
