"""Names by which a server may be called.

A page of strangers may let its own name point to the address of a server in
another network (DNS rebinding); a browser then lets that page read what the
server answers. Such a request has the name of the page in `Host`.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection
from typing import Any

__all__ = ["check_hosts", "for_hosts"]

# An address of version 6, or a name or address; and a port.
HOST = re.compile(r"(?:\[([\da-f:.]+)\]|([^\[\]:/\s]+))(?::\d*)?", re.I)


def check_hosts(names: Collection[str]) -> None:
    """Raises a ValueError unless all are names of hosts, or "*"."""
    for name in names:
        if name != "*" and (_host(name) or None) != name.lower():
            raise ValueError(
                "allowed_host must be a name without scheme and port, or *. "
                f"Received: {name!r}."
            )


def for_hosts(
    application: Callable[..., Awaitable[None]],
    names: Collection[str],
    refused: Callable[..., Awaitable[None]],
) -> Callable[..., Awaitable[None]]:
    """Return an ASGI application that `refused` answers for other hosts.

    Args:
        application: what answers a request without `Host`, which browsers
            always send; to `localhost`; to an address in digits, which cannot
            be rebound; and to `names`.
        names: names of hosts, "*" for all.
        refused: what answers otherwise.
    """
    known = {"localhost", *(x.lower() for x in names)}

    async def addressed(scope: Any, receive: Any, send: Any) -> None:
        hosts = [v for k, v in scope.get("headers", ()) if k == b"host"]
        allowed = "*" in known or all(
            _is_known(_host(x.decode("latin-1")), known) for x in hosts
        )
        await (application if allowed else refused)(scope, receive, send)

    return addressed


def _host(text):
    """Return the host without its port; "" for what is none."""
    found = HOST.fullmatch(text)
    return (found[1] or found[2]).lower().rstrip(".") if found else ""


def _is_known(host, known):
    try:
        return host in known or bool(ipaddress.ip_address(host))
    except ValueError:
        return False
