"""Helpers of the library. Nothing here is part of the public surface."""
