"""Other queues for Python, measured on the same server. Each one is installed into a separate environment."""
