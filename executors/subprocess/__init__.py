"""Jobs in processes of their own: docs/executors.md says what they may expect, ARCHITECTURE.md how it is built."""

from glidemq_async.executors.subprocess.executor import SubprocessExecutor

__all__ = ["SubprocessExecutor"]
