"""The image of deploy/Dockerfile is built, and its parts run as containers with the users of deploy/users.acl.

Needs a Docker daemon, and the base image of the Dockerfile or a registry that has it.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager, suppress

import httpx2
import pytest

from tests.docs.blocks import ROOT
from tests.support.servers import Server, free_port, standalone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
IMAGE = "glidemq-shop-test"
START_SECONDS = 60.0


def docker(*words: str) -> str:
    """Run a command of Docker, and return what it prints."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def has_docker() -> bool:
    """Return whether a daemon runs and has the base image, or can pull it."""
    [base] = {line.split()[1] for line in DOCKERFILE.read_text().splitlines() if line.startswith("FROM ")}

    def works(*words: str) -> bool:
        return subprocess.run(["docker", *words], capture_output=True, check=False).returncode == 0

    if shutil.which("docker") is None or not works("info"):
        return False
    return works("image", "inspect", base) or works("pull", base)


@pytest.fixture(scope="module", autouse=True)
def image() -> Iterator[None]:
    if not has_docker():
        pytest.skip("no Docker daemon with the base image here")
    # The committed files are the context, because an older builder does not read Dockerfile.dockerignore.
    files = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    build = ["docker", "build", "--network", "host", "-f", "deploy/Dockerfile", "-t", IMAGE, "-"]
    built = subprocess.run(build, input=files, capture_output=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    yield
    docker("image", "rm", IMAGE)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with standalone("--aclfile", str(ROOT / "deploy" / "users.acl")) as running:
        yield running


class Parts:
    """The containers of one deployment."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def environment(self, role: str) -> list[str]:
        url = f"redis://{role}:secret@127.0.0.1:{self._server.port}/0"
        return ["--network", "host", "--env", f"GLIDEMQ_URL={url}", "--env", "GLIDEMQ_VERSION=2026.11.1"]

    @contextmanager
    def running(self, role: str, *command: str) -> Generator[str]:
        """Run a container, yield its id, and remove it."""
        container = docker("run", "--detach", *self.environment(role), IMAGE, *command).strip()
        try:
            yield container
        finally:
            docker("rm", "--force", container)


async def wait_for(client: httpx2.AsyncClient, url: str, status: int) -> None:
    """Wait until a service that starts answers with this status."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            with suppress(httpx2.TransportError):
                if (await client.get(url)).status_code == status:
                    return
            await asyncio.sleep(0.1)


async def test_a_job_passes_through_the_containers(server: Server) -> None:
    parts, ports = Parts(server), [free_port() for _ in range(3)]
    health, ui, service = map(str, ports)
    loaded = docker(
        "run", "--rm", *parts.environment("deployer"), "--env", "GLIDEMQ_APP=", IMAGE, *words("functions --load")
    )
    assert len(set(re.findall(r"\b[0-9a-f]{12}\b", loaded))) == 1, loaded
    work = words(f"worker shop:mq --processes 2 --health-port {health} --shutdown-timeout 30 --log-format json")
    with (
        parts.running("worker", *work) as worker,
        parts.running("operator", *words(f"ui --host 127.0.0.1 --port {ui} --auth tokens")) as pages,
        parts.running("producer", "uvicorn", "shop:app", "--host", "127.0.0.1", "--port", service) as app,
    ):
        async with httpx2.AsyncClient() as client:
            await wait_for(client, f"http://127.0.0.1:{ui}/", 401)
            await wait_for(client, f"http://127.0.0.1:{health}/readyz", 200)
            await wait_for(client, f"http://127.0.0.1:{service}/health", 200)
            placed = await client.post(f"http://127.0.0.1:{service}/orders", params={"item": "a book"})
            assert placed.status_code == 202
        docker("exec", worker, *words(f"healthcheck --port {health}"))
        assert docker("exec", worker, "id", "--user").strip() == "10001"
        docker("exec", pages, *words(f"watch orders {placed.json()['job']}"))
        seen = docker("exec", pages, *words(f"job orders {placed.json()['job']} --json"))
        assert json.loads(seen)["return_value"] == "shipped a book"
        docker("stop", "--time", "45", worker, pages, app)
        codes = docker("inspect", worker, pages, "--format", "{{.State.ExitCode}}").split()
        assert codes == ["0", "0"], docker("logs", worker)


def words(command: str) -> list[str]:
    """Return the words of a command of the library."""
    return ["glidemq", *command.split()]
