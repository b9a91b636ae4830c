"""The services of deploy/compose/compose.yaml start in their order, run a job, and end with exit code 0.

Needs a Docker daemon, Compose, and the images of the file or a registry that has them. Prometheus is left out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.docs.blocks import ROOT
from tests.docs.test_image import docker, has_docker, wait_for
from tests.support.servers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
COMPOSE = ROOT / "deploy" / "compose" / "compose.yaml"
PROJECT = "glidemq-compose-test"
IMAGE = "glidemq-compose-test-shop"


def composer() -> list[str] | None:
    """Return the command of Compose, None if it is not installed."""
    if shutil.which("docker") is None:
        return None
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def on_host_network(ports: dict[str, int]) -> dict[str, Any]:
    """Return the file with free ports of the host network, because the daemon may have no bridge."""
    text = COMPOSE.read_text(encoding="utf-8").replace("@valkey:6379", f"@127.0.0.1:{ports['valkey']}")
    found: dict[str, Any] = yaml.safe_load(text)
    # The older Compose does not know `name`.
    services = {name: each for name, each in found["services"].items() if name != "prometheus"}
    for name, service in services.items():
        service.pop("ports", None)
        if service.pop("build", None) is not None:
            service["image"] = IMAGE
        service["network_mode"] = "host"
        service["volumes"] = [volume.replace("../", f"{ROOT / 'deploy'}/") for volume in service.get("volumes", ())]
        words = [str(ports[name]) if word == DEFAULTS.get(name) else word for word in service["command"]]
        service["command"] = words
    valkey = services["valkey"]
    valkey["command"] += ["--port", str(ports["valkey"])]
    valkey["healthcheck"]["test"][1] = valkey["healthcheck"]["test"][1].replace(
        "valkey-cli", f"valkey-cli -p {ports['valkey']}"
    )
    services["worker"]["healthcheck"]["test"][-1] = str(ports["worker"])
    return {"services": services, "volumes": found["volumes"]}


DEFAULTS = {"worker": "8081", "ui": "8321", "app": "8000"}


@pytest.fixture(scope="module")
def image() -> Iterator[None]:
    if composer() is None or not has_docker():
        pytest.skip("no Docker daemon with Compose and the base image here")
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    server = services["valkey"]["image"]
    if all(
        subprocess.run(["docker", *words, server], capture_output=True, check=False).returncode
        for words in (["image", "inspect"], ["pull"])
    ):
        pytest.skip(f"the image {server} is not here")
    files = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    build = ["docker", "build", "--network", "host", "-f", "deploy/Dockerfile", "-t", IMAGE, "-"]
    built = subprocess.run(build, input=files, capture_output=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    yield
    docker("image", "rm", IMAGE)


@pytest.mark.usefixtures("image")
async def test_the_services_run_a_job_and_end_in_time(tmp_path: Path) -> None:
    ports = {name: free_port() for name in ("valkey", "worker", "ui", "app")}
    file = tmp_path / "compose.yaml"
    file.write_text(json.dumps(on_host_network(ports)))  # JSON is YAML

    def compose(*words: str) -> str:
        command = [*(composer() or []), "-p", PROJECT, "-f", str(file), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def container(service: str) -> str:
        return compose("ps", "-q", service).strip()

    try:
        compose("up", "-d")
        async with httpx2.AsyncClient() as client:
            await wait_for(client, f"http://127.0.0.1:{ports['ui']}/", 401)
            await wait_for(client, f"http://127.0.0.1:{ports['worker']}/readyz", 200)
            await wait_for(client, f"http://127.0.0.1:{ports['app']}/health", 200)
            placed = await client.post(f"http://127.0.0.1:{ports['app']}/orders", params={"item": "a book"})
        pages, job = container("ui"), placed.json()["job"]
        docker("exec", pages, "glidemq", "watch", "orders", job)
        seen = docker("exec", pages, "glidemq", "job", "orders", job, "--json")
        assert json.loads(seen)["return_value"] == "shipped a book"
        ended = [container(name) for name in ("worker", "ui", "valkey")]  # uvicorn ends with the signal
        compose("stop")
        assert docker("inspect", *ended, "--format", "{{.State.ExitCode}}").split() == ["0", "0", "0"]
    finally:
        compose("down", "-v")
