"""Entry point of a new interpreter: `boot.py guard|child <configuration's descriptor> [<channel's>]`.

It imports nothing of the library before it has read the import path from the configuration.
"""

import json
import os
import sys


def _main() -> None:
    what, descriptor = sys.argv[1], int(sys.argv[2])
    with os.fdopen(descriptor, "rb") as file:
        config = json.load(file)
    # The worker's path, and before any import of the library: a checkout or a zip that only the worker's path contains
    # must be found here too.
    sys.path[:] = config["path"]
    if what == "guard":
        from glidemq_async.executors.subprocess import guard

        config["control"] = int(sys.argv[3])
        sys.argv[:] = config["argv"]
        guard.main(config)
    else:
        from glidemq_async.executors.subprocess import child

        sys.argv[:] = config["argv"]
        child.main(config)


if __name__ == "__main__":
    _main()
