"""Checks before every response: permitted hosts, address length, and security headers for browsers."""

import re
import socket
from collections.abc import Collection
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Permissions of a browser for the page: scripts and styles only from this server."""

_POLICY = "Content-Security-Policy"  # its last directive, frame-ancestors, is extended by Guard

NOTEBOOKS = ("http://localhost:*", "http://127.0.0.1:*", "vscode-webview:")
"""Local pages in which notebooks may embed the page."""

LONGEST_ADDRESS = 8_000
"""Maximum length of an address in characters."""

_HOST = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[^:\[\]]+))(?::\d{1,5})?")


class SecurityMiddleware:
    """Middleware that admits requests addressed to this server, and adds :data:`HEADERS` to every response.

    A foreign page can make its own host name resolve to this server (DNS rebinding), but its requests then carry that
    name: only names of this machine are answered. An IP address cannot be the name of a foreign site.

    Args:
        app: The application.
        names: Host names that are answered.
        frames: Additional pages that may embed this one, in the syntax of the content security policy.
    """

    def __init__(self, app: ASGIApp, names: Collection[str], frames: Collection[str] = ()):
        self._app = app
        policy = " ".join([HEADERS[_POLICY], *frames])
        self._headers = HEADERS | {_POLICY: policy}
        self._names = {name.lower().rstrip(".") for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    # Assets set their own caching, which must not be overwritten.
                    headers.setdefault(name, value)
            await send(message)

        refusal = None
        if not self.answers(Headers(scope=scope).get("host", "")):
            refusal = PlainTextResponse("calculon does not answer requests for this host name", 400)
        elif len(scope["path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            refusal = PlainTextResponse("the address is too long", 414)
        await (refusal or self._app)(scope, receive, guarded)

    def answers(self, host: str) -> bool:
        """Return True if requests with this ``Host`` header are answered."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found["six"] or found["name"]
        return name.lower().rstrip(".") in self._names or _is_number(name)


def _is_number(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def names_of(host: str) -> set[str]:
    """Return the host names of a server; all names of this machine if others can reach it."""
    names = {"localhost", host}
    if not is_loopback(host):
        own = {socket.gethostname(), socket.getfqdn()}
        names |= own | {f"{name.partition('.')[0]}.local" for name in own}
    return names


def is_loopback(host: str) -> bool:
    """Return True if a server listening on an address is reachable only from this machine."""
    return host == "localhost" or (_is_number(host) and ip_address(host).is_loopback)
