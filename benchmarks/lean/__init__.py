"""The lean path: plain jobs compared with a bare redis-py loop on a Redis with default settings over TCP."""
