"""The command `glidemq worker`: one worker process, or several under a supervisor.

command: the options. process: what one process does. child: a process that a supervisor started. supervisor:
starting, restarting and stopping them. lent_ports, shared_ports, metrics: one listener for all of them. reloading:
restarts when a file changes. logs: what is printed.
"""
