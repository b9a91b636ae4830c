"""Groups of options: each field becomes an option of the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from glidemq_async.cli.option_groups import with_groups


@dataclass(frozen=True, kw_only=True)
class Coffee:
    """A group with a required option and one with a default."""

    beans: Annotated[str, typer.Option("--beans", help="The beans.")]
    cups: Annotated[int, typer.Option("--cups", min=1)] = 1


made: list[tuple[str, Coffee, bool]] = []


@with_groups
def brew(name: str, *, coffee: Coffee, hot: Annotated[bool, typer.Option("--hot")] = False) -> None:
    """Brew a coffee."""
    made.append((name, coffee, hot))


@pytest.fixture
def app() -> typer.Typer:
    made.clear()
    app = typer.Typer()
    app.command()(brew)
    return app


def test_the_command_gets_the_group_as_an_object(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["ada", "--cups", "2", "--beans", "dark", "--hot"]).exit_code == 0
    assert CliRunner().invoke(app, ["bob", "--beans", "light"]).exit_code == 0
    assert made == [("ada", Coffee(beans="dark", cups=2), True), ("bob", Coffee(beans="light"), False)]


def test_the_options_of_a_group_are_shown_and_checked(app: typer.Typer) -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert shown.index("The beans.") < shown.index("--cups") < shown.index("--hot")
    assert "Brew a coffee." in shown
    assert CliRunner().invoke(app, ["ada"]).exit_code == 2
    assert CliRunner().invoke(app, ["ada", "--beans", "dark", "--cups", "0"]).exit_code == 2
    assert made == []
