"""Addresses of files: what of them is shown, and how they are opened."""

import re
import urllib.error
import urllib.parse
import urllib.request

__all__ = ["check_address", "encoded", "open_address", "shown"]

TIMEOUT = 60  # seconds without a byte
# What a server can name in a query that opens what is not public.
SECRET = re.compile(r"\?.*", re.DOTALL)
# Beside letters and digits; "%" begins what is encoded already.
SAFE = "/%:=&?~#+!$,;'@()*[]"


def shown(url: str) -> str:
    """An address as messages have it, without its password and its query.

    Example:
        >>> shown("https://me:secret@host/a.npz?token=x")
        'https://host/a.npz?...'
    """
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    path = SECRET.sub("?...", f"{host.rpartition('@')[2]}{slash}{path}")
    return f"{scheme}{separator}{path}"


def check_address(url: str) -> None:
    """Raises a ValueError for an address with a password, or without a host."""
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
    """An address in ASCII, as servers take it.

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
        raise ValueError(f"{shown(url)!r} has no host: {error}.") from None
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
    """Opens an address, and what it redirects to, as `urllib` does.

    Raises:
        ValueError: for a redirect from https to anything else, which is not
            followed.
        OSError: as `urllib.request.urlopen`.
    """
    request = urllib.request.Request(encoded(url), headers=headers)
    opener = urllib.request.build_opener(_Redirects)
    return opener.open(request, timeout=TIMEOUT)
