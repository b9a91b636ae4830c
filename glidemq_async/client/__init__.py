"""The connection of one queue: its functions, payloads, awaited results and schedulers."""
