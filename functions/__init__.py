"""The server-side function library (Lua by concern) and its typed Python callers."""
