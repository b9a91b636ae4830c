"""The list of packages, which pyproject.toml cannot express. All other settings are in pyproject.toml.

`find_packages` finds every package under glidemq_async/. `functions`, `executors` and `demo` are at the top of the
repository and are installed as glidemq_async.functions, glidemq_async.executors and glidemq_async.demo.
"""

from setuptools import find_packages, setup

own = find_packages(include=["glidemq_async", "glidemq_async.*", "pyspark_glidemq"])
mapped = find_packages(include=[pattern for top in ("functions", "executors", "demo") for pattern in (top, f"{top}.*")])

# A set: the links inside glidemq_async/ show the mapped packages a second time (an sdist has no links).
setup(packages=sorted({*own, *(f"glidemq_async.{name}" for name in mapped)}))
