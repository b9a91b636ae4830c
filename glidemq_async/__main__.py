"""`python -m glidemq_async` is `glidemq`."""

from glidemq_async.cli import main

if __name__ == "__main__":
    main()
