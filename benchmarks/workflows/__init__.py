"""The benchmarks of workflows and flows: `python -m benchmarks.workflows` writes docs/reports/workflows.md."""
