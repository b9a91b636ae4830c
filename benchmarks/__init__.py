"""What the queue costs, measured beside a bare streams loop and a naive library in the same run: `make bench`."""
