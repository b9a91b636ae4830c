"""The command `glidemq worker`: one worker process, or several under a supervisor.

`process` is one worker process, and `child` one that a supervisor started. `supervisor` starts, restarts and stops the
children; `delegated_ports`, `shared_ports` and `metrics` give them one listener. `reloading` watches files.
"""
