"""Skip tests that need pyspark or pyarrow if these are not installed. `make test` reports this."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pyspark") and find_spec("pyarrow") else ["test_*.py"]
