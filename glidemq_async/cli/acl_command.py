"""The command `glidemq acl`: the permissions that a user of the server needs."""

from __future__ import annotations

from typing import Annotated

import typer

from glidemq_async.cli import output
from glidemq_async.cli.options import AsJson

RoleName = Annotated[str, typer.Argument(metavar="ROLE", help="producer, worker, operator, viewer or deployer.")]
Prefix = Annotated[str, typer.Option("--prefix", help="The prefix of the store keys of the queues.")]
Queues = Annotated[
    list[str] | None, typer.Option("--queue", help="Allow only this queue. Repeat it.", show_default="every queue")
]


def acl(role: RoleName, prefix: Prefix = "glide", queue: Queues = None, as_json: AsJson = False) -> None:
    """Print the ACL rules of a role, for ACL SETUSER or a users file. Connects to no server."""
    from glidemq_async.storage.redis.server_roles import ROLES, rules_of
    from glidemq_async.stored.names import check_name

    if role not in ROLES:
        raise typer.BadParameter(f"it must be one of {', '.join(ROLES)}", param_hint="ROLE")
    try:
        names = [check_name("queue", each) for each in queue or []]
        rules = rules_of(role, prefix=check_name("prefix", prefix), queues=names)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        output.print_json({"role": role, "rules": rules})
    else:
        typer.echo(" ".join(rules))
