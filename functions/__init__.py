"""The function library of the server (one Lua file for each feature) and its typed Python callers."""
