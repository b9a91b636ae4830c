"""The server-side library: Lua sources by concern, joined into one, and the typed callers."""
