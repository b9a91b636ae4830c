"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("glidemq-async")
except PackageNotFoundError:  # a source checkout that is on the path without being installed
    __version__ = "0+unknown"
