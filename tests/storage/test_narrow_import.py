"""Connections load only a part of redis-py. An application that imports redis-py later gets all of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.servers import standalone


def run(program: str, *arguments: str) -> str:
    """Run a program in a new interpreter and return its output. It must print nothing on stderr."""
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


ADD = """
import asyncio, sys
from glidemq_async import Queue
async def add():
    async with Queue("q", sys.argv[1]) as queue:
        await queue.add("n")
asyncio.run(add())
print(*[name for name in sys.modules if name.split(".")[0] == "redis"])
"""


@pytest.mark.parametrize("options", ["", "?socket_keepalive=true"])
async def test_a_connection_loads_neither_clients_nor_commands(options: str) -> None:
    async with standalone() as server:
        loaded = set(run(ADD, server.url + options).split())
    assert "redis.asyncio.connection" in loaded
    assert not loaded & {"redis.client", "redis.asyncio.client", "redis.cluster", "redis.commands"}


METRICS = """
import sys
from glidemq_async.storage.redis.narrow_import import import_connections
import_connections()
assert "opentelemetry.sdk.metrics" not in sys.modules
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
import redis
from redis.observability import OTelConfig, get_observability_instance
get_observability_instance().init(OTelConfig())
redis.Redis.from_url(sys.argv[1]).ping()
print(reader.get_metrics_data().resource_metrics[0].scope_metrics[0].scope.name)
"""


async def test_metrics_of_redis_py_work_although_its_import_skips_the_sdk() -> None:
    async with standalone() as server:
        assert "redis" in run(METRICS, server.url)


SDK_IN_A_THREAD = """
import builtins, sys, threading
from glidemq_async.storage.redis.narrow_import import import_connections
reached, imported, before = threading.Event(), threading.Event(), list(sys.meta_path)
original = builtins.__import__
def stop_at_the_sdk(name, *rest, **named):
    if name == "opentelemetry.sdk.metrics" and not reached.is_set():
        reached.set()
        assert imported.wait(30)
    return original(name, *rest, **named)
builtins.__import__ = stop_at_the_sdk
narrow = threading.Thread(target=import_connections)
narrow.start()
assert reached.wait(30)
from opentelemetry.sdk.metrics import MeterProvider
imported.set()
narrow.join()
print(sys.meta_path == before, MeterProvider.__name__)
"""


def test_another_thread_can_import_the_sdk_at_the_same_time() -> None:
    assert run(SDK_IN_A_THREAD) == "True MeterProvider\n"


LATER = """
import sys
from glidemq_async.storage.redis.narrow_import import import_connections
import_connections()
from redis.asyncio.connection import Connection as Used
{use}
import redis, redis.asyncio, redis.asyncio.client, redis.client
assert redis.Redis is redis.client.Redis
assert redis.asyncio.Redis is redis.asyncio.client.Redis
assert redis.asyncio.Connection is Used
assert redis.asyncio.sentinel.Sentinel is redis.asyncio.Sentinel
assert not hasattr(redis, "no_such_name")
assert type(redis) is type(redis.asyncio) is type(sys)
print(redis.__version__)
"""


@pytest.mark.parametrize(
    "use",
    [
        "import redis",
        "import redis.commands",
        "from redis.asyncio import Redis",
        "from redis.asyncio.cluster import RedisCluster",
        "from redis import exceptions",
        "from redis import *",
        "import redis; redis.asyncio.Redis",
        "assert import_connections() is None",
    ],
)
def test_redis_py_is_complete_for_the_application(use: str) -> None:
    import redis

    assert run(LATER.format(use=use)) == f"{redis.__version__}\n"


THREADS = """
import threading
from glidemq_async.storage.redis.narrow_import import import_connections
import_connections()
found, start = [], threading.Barrier(8)
def use():
    start.wait()
    from redis.asyncio import Redis
    import redis
    found.append((Redis, redis.Redis))
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found), len(set(found)))
"""


def test_threads_that_import_redis_py_first_get_the_complete_package() -> None:
    assert run(THREADS) == "8 1\n"


def test_an_application_that_imported_redis_py_keeps_its_packages() -> None:
    program = (
        "import redis\nfrom glidemq_async.storage.redis.narrow_import import import_connections\n"
        "before = dict(vars(redis))\nimport_connections()\nprint(before == vars(redis), type(redis).__name__)"
    )
    assert run(program) == "True module\n"


def test_without_redis_py_the_error_names_it() -> None:
    program = (
        "import sys\nsys.modules['redis'] = None\n"
        "from glidemq_async.storage.redis.narrow_import import import_connections\n"
        "try:\n    import_connections()\nexcept ImportError as error:\n    print(error.name)"
    )
    assert run(program).startswith("redis")
