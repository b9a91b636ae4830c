"""Queues in web services: a module per framework. Each opens shared connections with the app and closes them with it.

Nothing is imported here: a module needs its framework, and says by its ImportError what to install.
"""
