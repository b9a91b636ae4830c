"""The first thing that runs in a new interpreter: `boot.py <what> <configuration's descriptor> [<channel's>]`.

It imports nothing of the library before the configuration has said where to find it.
"""

import json
import os
import sys


def _main() -> None:
    what, descriptor = sys.argv[1], int(sys.argv[2])
    with os.fdopen(descriptor, "rb") as file:
        config = json.load(file)
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
