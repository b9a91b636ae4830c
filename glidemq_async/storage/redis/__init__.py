"""Storages on a Redis or Valkey server, a Cluster or Sentinel."""
