"""Addresses of files and errors of servers: what of them is shown.

Addresses may be signed, and errors of the clients of hubs hold such addresses
and requests that have the token. So a message has an address without its query,
and of an error only the status and the words of the server.
"""

import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = [
    "RETRIED",
    "attempted",
    "check_address",
    "encoded",
    "open_address",
    "refused",
    "shown",
    "status_of",
    "without_secrets",
]

TIMEOUT = 60  # seconds without a byte
# What a server can name in a query that opens what is not public.
SECRET = re.compile(r"\?.*", re.DOTALL)
# Beside letters and digits; "%" begins what is encoded already.
SAFE = "/%:=&?~#+!$,;'@()*[]"


def shown(url: str) -> str:
    """Return an address for messages, without its password and its query.

    Example:
        >>> shown("https://me:secret@host/a.npz?token=x")
        'https://host/a.npz?...'
    """
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    path = SECRET.sub("?...", f"{host.rpartition('@')[2]}{slash}{path}")
    return f"{scheme}{separator}{path}"


def check_address(url: str) -> None:
    """Raise a ValueError for an address with a password, or without a host."""
    try:
        parts = urllib.parse.urlsplit(url)
        known = bool(parts.hostname) and parts.port != 0
    except ValueError:  # of its port or its brackets
        known = False
    if not known:
        raise ValueError(f"{shown(url)!r} is no address of a file.")
    if "@" in parts.netloc:
        raise ValueError(
            f"The address {shown(url)} has a password in it, which would be "
            "sent along and noted. Download the file with a program that "
            "signs in, and pass the path of your copy."
        )


def encoded(url: str) -> str:
    """Return an address in ASCII, as servers take it.

    Raises:
        ValueError: when its host has no name in ASCII.

    Example:
        >>> encoded("https://host/caf\\u00e9 1.npz")
        'https://host/caf%C3%A9%201.npz'
    """
    parts = urllib.parse.urlsplit(url)
    try:
        host = parts.netloc.encode("idna").decode()
    except UnicodeError as error:
        raise ValueError(f"{shown(url)!r} has no host: {error}.") from error
    path, query = (
        urllib.parse.quote(x, SAFE) for x in (parts.path, parts.query)
    )
    return urllib.parse.urlunsplit((parts.scheme, host, path, query, ""))


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows no address that is less private than the one before."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        allowed = ("https",) if req.type == "https" else ("https", "http")
        if urllib.parse.urlsplit(newurl).scheme not in allowed:
            fp.close()
            raise ValueError(
                f"{shown(req.full_url)} redirects to {shown(newurl)}, and "
                "only addresses that start with https:// are followed."
            )
        return super().redirect_request(
            req, fp, code, msg, headers, encoded(newurl)
        )


def open_address(url: str, headers: dict[str, str]):
    """Open an address, and what it redirects to, as `urllib` does.

    Raises:
        ValueError: for a redirect from https to anything else, which is not
            followed.
        OSError: as `urllib.request.urlopen`.
    """
    request = urllib.request.Request(encoded(url), headers=headers)
    opener = urllib.request.build_opener(_Redirects)
    return opener.open(request, timeout=TIMEOUT)


ATTEMPTS = 4
MAX_PAUSE = 8  # seconds
RETRIED = (408, 425, 429, 500, 502, 503, 504)
# Modules whose errors are those of a network.
CLIENTS = ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3")
# There is no server, or no network: that takes longer to pass.
UNREACHABLE = {"ConnectError", "ConnectionRefusedError", "gaierror"}
SECRETS = re.compile(r"(hf_|KGAT_)\w+|(?<=[?&])[\w.-]+=[^&\s]+|(?i:bearer \S+)")
MAX_WORDS = 300


def attempted(work: Callable[[], Any], attempts: int = ATTEMPTS) -> Any:
    """Do something over a network, again after failures that soon pass.

    Args:
        work: a function that may be called again.
        attempts: int, how often at most.

    Raises:
        Exception: what the last attempt raised, or one that will not pass.
    """
    for attempt in range(1, attempts + 1):
        try:
            return work()
        except Exception as error:
            if attempt == attempts or not _may_pass(error):
                raise
        time.sleep(min(2 ** (attempt - 1), MAX_PAUSE))


def _may_pass(error) -> bool:
    status = status_of(error)
    if status is not None:
        return status in RETRIED
    kinds = {type(cause).__name__ for cause in _causes(error)}
    return _is_of_network(error) and not kinds & UNREACHABLE


def _causes(error) -> list:
    """List the error and what it was raised from, the first one last."""
    found = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def status_of(error: BaseException) -> int | None:
    """Return the status that a server gave, or None."""
    for cause in _causes(error):
        response = getattr(cause, "response", None)
        status = getattr(response, "status_code", None)
        if isinstance(status, int):
            return status
    return None


def _is_of_network(error) -> bool:
    return any(
        isinstance(cause, (ConnectionError, TimeoutError))
        or type(cause).__module__.partition(".")[0] in CLIENTS
        for cause in _causes(error)
    )


def refused(
    error: Exception, what: str, cures: dict[int, str], secret: str | None
) -> NoReturn:
    """Raise an OSError in one line for what a hub, or the way to it, did.

    Args:
        error: what its client raised.
        what: str, what could not be done, the beginning of a sentence.
        cures: dict from the status to what to do about it, a sentence.
        secret: str, the token, which is never repeated.

    Raises:
        OSError: with the status, or the kind of failure, and the cure.
        Exception: the error itself, where it is none of a hub.
    """
    status = status_of(error)
    if status is None and isinstance(error, RuntimeError):
        reason, cure = without_secrets(str(error), secret), ""
    elif status is None and not _is_of_network(error):
        raise error
    elif status is None:
        reason = type(_causes(error)[-1]).__name__
        cure = "Check the network and give the same command again."
    else:
        reason = f"the server answers {status}{_words(error, secret)}"
        cure = cures.get(status, "Give the same command again later.")
    # The cause may have the secret in its words.
    raise OSError(f"{what}: {reason.rstrip('.')}. {cure}".strip()) from None


def _words(error, secret) -> str:
    for cause in _causes(error):
        words = getattr(cause, "server_message", None)
        if words:
            words = " ".join(str(words).split())[:MAX_WORDS].rstrip(".")
            return f" ({without_secrets(words, secret)})"
    return ""


def without_secrets(words: str, secret: str | None) -> str:
    """Replace the token, and all that looks like one, by stars."""
    words = words.replace(secret, "***") if secret else words
    return SECRETS.sub("***", words)
