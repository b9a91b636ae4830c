"""Queues: adding, inspecting, limiting and cleaning jobs, and their events."""
