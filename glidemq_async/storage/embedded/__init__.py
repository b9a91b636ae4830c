"""Storages on an embedded server: `memory://` and `file://`."""
