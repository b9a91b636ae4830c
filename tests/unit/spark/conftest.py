"""What needs pyspark or pyarrow is left out where these are not installed; `make test` says so."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pyspark") and find_spec("pyarrow") else ["test_*.py"]
