"""Runs jobs in subprocesses. docs/executors.md is the user guide; docs/internals/processes.md describes the design."""

from glidemq_async.executors.subprocess.executor import SubprocessExecutor

__all__ = ["SubprocessExecutor"]
