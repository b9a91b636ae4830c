"""The files of deploy/ agree with the library: commands, options, times, probes, metrics and permissions exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import promql_parser
import pytest
import typer
import yaml
from typer.core import TyperGroup

from glidemq_async.cli.app import build
from glidemq_async.cli.worker.metrics import merged
from glidemq_async.storage.redis.server_roles import ROLES, rules_of
from glidemq_async.stored.record import STATES
from glidemq_async.telemetry import Prometheus
from tests.docs.blocks import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
OTHER_SCHEMAS = {"keda.yaml", "prometheus-adapter.yaml"}
"""Files without a document of Kubernetes itself: a custom resource, and the values of a chart."""
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name not in OTHER_SCHEMAS)
COMPOSE = DEPLOY / "compose" / "compose.yaml"
MONITORING = DEPLOY / "monitoring"
DRAIN_MARGIN = 10
"""Seconds that a worker needs in addition to its shutdown timeout, at most."""
SETTINGS = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "settings.yaml").read_text()))
METRIC = re.compile(r"\bglidemq_[a-z_]+")
STATE = re.compile(r'state[=!]~?"([a-z|-]+)"')
OUTCOME = re.compile(r'outcome="([a-z_]+)"')


def unit(path: Path) -> dict[str, list[str]]:
    """Return the settings of a unit. A setting may have several lines."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", path.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def services() -> dict[str, Any]:
    found: dict[str, Any] = documents(COMPOSE)[0]["services"]
    return found


def pods() -> Iterator[dict[str, Any]]:
    """Yield the pod template of each Deployment."""
    for path in MANIFESTS:
        for document in documents(path):
            if document.get("kind") in {"Deployment", "Job"}:
                yield document["spec"]["template"]["spec"]


def commands() -> dict[str, list[str]]:
    """Return each command line of the files, by its place."""
    found = {path.name: shlex.split(unit(path)["ExecStart"][0]) for path in UNITS}
    for name, service in services().items():
        found[f"compose {name}"] = service.get("command", [])
        found[f"compose {name} healthcheck"] = service.get("healthcheck", {}).get("test", ["CMD"])[1:]
    for pod in pods():
        [container] = pod["containers"]
        found[f"kubernetes {container['name']}"] = container["args"]
    [line] = re.findall(r"^CMD (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    found["Dockerfile"] = json.loads(line)
    return {place: words for place, words in found.items() if words and words[0].split("/")[-1] == "glidemq"}


def option(words: list[str], name: str) -> int:
    return int(words[words.index(name) + 1])


@pytest.mark.parametrize("place", commands())
def test_each_command_has_options_that_exist(place: str) -> None:
    _, name, *rest = commands()[place]
    group = typer.main.get_command(build())
    context = group.make_context("glidemq", [name, *rest], resilient_parsing=False)
    assert isinstance(group, TyperGroup)
    command = group.get_command(context, name)
    assert command is not None, name
    # Parsing raises for an unknown option, a bad value and a missing argument. Nothing runs.
    command.make_context(name, list(rest), parent=context)


def test_every_place_has_its_command() -> None:
    assert {"Dockerfile", "glidemq-worker.service", "glidemq-ui.service"} <= commands().keys()
    assert {"compose worker", "compose worker healthcheck", "compose ui"} <= commands().keys()
    assert {"kubernetes worker", "kubernetes ui"} <= commands().keys()
    # The functions are loaded everywhere before the workers start.
    loading = ["functions", "--load"]
    assert [
        commands()[place][1:] for place in ("glidemq-functions.service", "compose functions", "kubernetes functions")
    ] == [loading] * 3


def test_an_unknown_option_is_noticed() -> None:
    group = typer.main.get_command(build())
    assert isinstance(group, TyperGroup)
    context = group.make_context("glidemq", ["worker", "shop:mq"])
    command = group.get_command(context, "worker")
    assert command is not None
    with pytest.raises(Exception, match="No such option"):
        command.make_context("worker", ["shop:mq", "--shutdown-timeuot", "30"], parent=context)


def test_a_stop_leaves_time_for_the_drain() -> None:
    service = unit(DEPLOY / "systemd" / "glidemq-worker.service")
    [pod] = [each for each in pods() if each["containers"][0]["name"] == "worker"]
    given = {
        "glidemq-worker.service": int(service["TimeoutStopSec"][0]),
        "compose worker": int(services()["worker"]["stop_grace_period"].removesuffix("s")),
        "kubernetes worker": pod["terminationGracePeriodSeconds"],
    }
    needed = {place: option(commands()[place], "--shutdown-timeout") + DRAIN_MARGIN for place in given}
    assert all(given[place] > needed[place] for place in given), (given, needed)
    # Another mode sends a second SIGTERM to the processes of the supervisor, which ends the drain.
    assert service["KillMode"] == ["mixed"]


def test_probes_ask_the_health_port() -> None:
    [pod] = [each for each in pods() if each["containers"][0]["name"] == "worker"]
    [container] = pod["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports["health"] == option(container["args"], "--health-port")
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {each["port"] for each in probes.values()} == {"health"}
    assert probes["livenessProbe"]["path"] == "/healthz"
    assert probes["readinessProbe"]["path"] == probes["startupProbe"]["path"] == "/readyz"
    check = services()["worker"]["healthcheck"]["test"]
    assert option(check, "--port") == option(services()["worker"]["command"], "--health-port")


def test_scrapers_ask_the_port_of_the_metrics() -> None:
    [port] = re.findall(r"Prometheus\(port=(\d+)", (DEPLOY / "shop.py").read_text())
    deployment, _ = documents(DEPLOY / "kubernetes" / "worker.yaml")
    worker = deployment["spec"]["template"]
    assert worker["metadata"]["annotations"]["prometheus.io/port"] == port
    assert {"name": "metrics", "containerPort": int(port)} in worker["spec"]["containers"][0]["ports"]
    assert f"worker:{port}" in (MONITORING / "prometheus.yaml").read_text()


def test_autoscalers_scale_the_worker() -> None:
    [keda] = documents(DEPLOY / "kubernetes" / "keda.yaml")
    [hpa] = documents(DEPLOY / "kubernetes" / "hpa.yaml")
    assert keda["spec"]["scaleTargetRef"]["name"] == hpa["spec"]["scaleTargetRef"]["name"] == "shop-worker"
    values = yaml.safe_load((DEPLOY / "kubernetes" / "prometheus-adapter.yaml").read_text())
    exported = {rule["name"]["as"] for rule in values["rules"]["external"]}
    assert {each["external"]["metric"]["name"] for each in hpa["spec"]["metrics"]} == exported


# -- metrics ----------------------------------------------------------------------------------------------------------


def exported() -> set[str]:
    """Return the names of all samples that the library exports."""
    names = {"glidemq_process_up"}
    assert b"# TYPE glidemq_process_up gauge" in merged({1: b""})
    for family in Prometheus().registry.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        names |= {family.name + suffix for suffix in suffixes}
    return names


def expressions() -> dict[str, list[str]]:
    """Return the queries of each file."""
    [rules] = documents(MONITORING / "alerts.yaml")
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    [keda] = documents(DEPLOY / "kubernetes" / "keda.yaml")
    [adapter] = documents(DEPLOY / "kubernetes" / "prometheus-adapter.yaml")
    return {
        "alerts": [rule["expr"] for group in rules["groups"] for rule in group["rules"]],
        "dashboard": [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        + [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"],
        "keda": [trigger["metadata"]["query"] for trigger in keda["spec"]["triggers"]],
        "adapter": [rule[key] for rule in adapter["rules"]["external"] for key in ("seriesQuery", "metricsQuery")],
    }


@pytest.mark.parametrize("file", expressions())
def test_each_metric_exists(file: str) -> None:
    found = {name for text in expressions()[file] for name in METRIC.findall(text)}
    assert found
    assert found <= exported()


@pytest.mark.parametrize("file", expressions())
def test_each_state_and_outcome_exists(file: str) -> None:
    guide = " ".join((ROOT / "docs" / "telemetry.md").read_text().split())
    [outcomes] = re.findall(r"Outcomes of runs are (.*?lease_lost)\.", guide)
    for text in expressions()[file]:
        assert {state for group in STATE.findall(text) for state in group.split("|")} <= set(STATES)
        assert all(re.search(rf"\b{outcome}\b", outcomes) for outcome in OUTCOME.findall(text))


def test_alerts_and_dashboard_use_every_metric() -> None:
    used = {name for file in ("alerts", "dashboard") for text in expressions()[file] for name in METRIC.findall(text)}
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exported()}
    assert families == {re.sub(r"_(bucket|count|sum)$", "", name) for name in used}


def test_each_alert_says_what_to_do() -> None:
    [rules] = documents(MONITORING / "alerts.yaml")
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    assert all({"summary", "action"} <= rule["annotations"].keys() and "severity" in rule["labels"] for rule in alerts)
    group = typer.main.get_command(build())
    assert isinstance(group, TyperGroup)
    context = group.make_context("glidemq", ["doctor"])
    named = {name for rule in alerts for name in re.findall(r"glidemq ([a-z]+)", rule["annotations"]["action"])}
    assert named
    assert all(group.get_command(context, name) for name in named)


def test_the_panels_do_not_overlap() -> None:
    panels = json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_each_query_can_be_parsed() -> None:
    for file, texts in expressions().items():
        # Grafana and the adapter put their own values into these places.
        for text in texts:
            if not text.startswith("label_values("):
                filled = text.replace("$__rate_interval", "5m").replace("<<.LabelMatchers>>", 'queue="q"')
                promql_parser.parse(filled)
        assert texts, file
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        promql_parser.parse("sum(rate(glidemq_jobs[5m])")


# -- formats ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for path in UNITS:
        text = path.read_text()
        assert "/srv/shop/.venv/bin/glidemq" in text
        (tmp_path / path.name).write_text(text.replace("/srv/shop/.venv/bin/glidemq", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / path.name) for path in UNITS)],
        capture_output=True,
        text=True,
        check=False,
    )
    # The command also reports problems of other units of the machine.
    said = [line for line in done.stderr.splitlines() if "glidemq" in line]
    assert said == []


def test_units_name_files_and_units_that_exist() -> None:
    files = {path.name for path in (DEPLOY / "systemd").iterdir()}
    for path in UNITS:
        settings = unit(path)
        assert {Path(each).name for each in settings["EnvironmentFile"]} <= files
        others = {word for line in settings["After"] for word in line.split() if word.startswith("glidemq-")}
        assert others <= files


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_the_schema_of_kubernetes_accepts_the_manifests(path: Path) -> None:
    found = documents(path)
    assert found, f"{path} has no document"
    for document in found:
        kubernetes_validate.validate(document, "1.31", strict=True)


def test_kubernetes_refuses_a_misspelt_field() -> None:
    document = documents(DEPLOY / "kubernetes" / "worker.yaml")[0]
    document["spec"]["template"]["spec"]["terminationGracePeriodSecond"] = 45
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, "1.31", strict=True)


def test_each_secret_of_a_pod_exists() -> None:
    secrets = {each["metadata"]["name"] for each in documents(DEPLOY / "kubernetes" / "settings.yaml")}
    used = [source["secretRef"]["name"] for pod in pods() for each in pod["containers"] for source in each["envFrom"]]
    assert sorted(used) == sorted(secrets)


def test_compose_names_services_and_files_that_exist() -> None:
    found = services()
    for service in found.values():
        assert set(service.get("depends_on", {})) <= found.keys()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in documents(COMPOSE)[0]["volumes"] or (COMPOSE.parent / source).exists()
    build = found["worker"]["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"


def test_the_image_copies_files_that_exist_and_installs_extras_that_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for source in re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE):
        assert (ROOT / source).exists()
        assert source not in ignored
    [extras] = re.findall(r"pip install .*\[([\w,-]+)\]", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    # The build needs these files.
    needed = {"pyproject.toml", "setup.py", "functions", "executors", "demo", project["readme"], "LICENSE"}
    assert not needed & set(ignored)
    [user] = re.findall(r"^USER (\d+)$", text, re.MULTILINE)
    assert {pod["securityContext"]["runAsUser"] for pod in pods()} == {int(user)}
    [exposed] = re.findall(r"^EXPOSE (.*)$", text, re.MULTILINE)
    ports = {
        str(port["containerPort"]) for pod in pods() for each in pod["containers"] for port in each.get("ports", [])
    }
    assert ports == set(exposed.split())


def test_the_capacity_has_the_figures_of_the_report() -> None:
    guide = (ROOT / "docs" / "deploying.md").read_text().partition("## Capacity")[2]
    rows = re.findall(r"^\| [^|]+ \| [\d,]+ \| [\d,]+ \|$", guide, re.MULTILINE)
    assert len(rows) >= 5
    assert set(rows) <= set((ROOT / "docs" / "reports" / "memory.md").read_text().splitlines())


# -- permissions ------------------------------------------------------------------------------------------------------


def users() -> str:
    """Return the users file. `python -m tests.docs.test_deploying` writes it after a change of the rules."""
    lines = ["user default reset on nopass -@all +ping"]
    lines += [f"user {role} on >secret {' '.join(rules_of(role))}" for role in ROLES]
    return "\n".join(lines) + "\n"


def test_the_users_have_the_rules_of_their_roles() -> None:
    assert (DEPLOY / "users.acl").read_text() == users(), "run python -m tests.docs.test_deploying"


def test_each_part_has_the_user_of_its_role() -> None:
    given = {name: service["environment"]["GLIDEMQ_URL"] for name, service in services().items() if "build" in service}
    given |= {
        path.stem: path.read_text() for path in (DEPLOY / "systemd").glob("*.env") if "redis://" in path.read_text()
    }
    secrets = {each["metadata"]["name"]: each["stringData"]["GLIDEMQ_URL"] for each in SETTINGS}
    given |= {f"kubernetes {name}": url for name, url in secrets.items()}
    users = {place: re.findall(r"redis://(\w+):", url)[0] for place, url in given.items()}
    assert users == {
        "functions": "deployer", "worker": "worker", "ui": "operator", "app": "producer",
        "deployer": "deployer", "operator": "operator",
        **{f"kubernetes shop-glidemq-{role}": role for role in ROLES if role != "viewer"},
    }  # fmt: skip


if __name__ == "__main__":
    (DEPLOY / "users.acl").write_text(users())
