"""The reader of `format("glidemq")`: events, jobs and queues as tables, and events as streams."""
