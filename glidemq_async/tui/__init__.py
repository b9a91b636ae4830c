"""The terminal view of queues: `glidemq top`. It needs the extra `tui`."""
