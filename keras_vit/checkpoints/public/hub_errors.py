"""What went wrong between this machine and a hub, in one line.

Errors of the clients hold addresses that are signed and requests that have the
token. So only the status and the words of the server are taken from them.
"""

import re
import time
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["RETRIED", "attempted", "refused", "status_of", "without_secrets"]

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
    """Does something over a network, again after failures that soon pass.

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
    """The error and what it was raised from, the first one last."""
    found = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def status_of(error: BaseException) -> int | None:
    """The status that a server answered with, or None."""
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
    """Raises an OSError in one line for what a hub, or the way to it, did.

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
    raise OSError(f"{what}: {reason.rstrip('.')}. {cure}".strip()) from None


def _words(error, secret) -> str:
    for cause in _causes(error):
        words = getattr(cause, "server_message", None)
        if words:
            words = " ".join(str(words).split())[:MAX_WORDS].rstrip(".")
            return f" ({without_secrets(words, secret)})"
    return ""


def without_secrets(words: str, secret: str | None) -> str:
    """A text with stars for the token, and for all that looks like one."""
    words = words.replace(secret, "***") if secret else words
    return SECRETS.sub("***", words)
