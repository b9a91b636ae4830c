"""One module for each measured queue. It runs in the environment of that queue; its class is `ADAPTER`."""
