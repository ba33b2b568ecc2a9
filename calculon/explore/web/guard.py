"""What stands before every answer: who may ask, how long an address may be, and what a browser may do with it."""

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
"""What a browser may do with an answer: load scripts and styles from here alone."""

_POLICY = "Content-Security-Policy"  # it ends with the frames

NOTEBOOKS = ("http://localhost:*", "http://127.0.0.1:*", "vscode-webview:")
"""Pages of this machine in which a notebook shows others."""

LONGEST_ADDRESS = 8_000
"""Characters of an address."""

_HOST = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[^:\[\]]+))(?::\d{1,5})?")


class Guard:
    """Lets requests through that name this server, and adds :data:`HEADERS` to every answer.

    A page of somebody else's can make its own name lead here, but not take another in its requests: only names that
    are this machine's are answered. A number is never the name of somebody else's site.

    Args:
        app: What answers.
        names: Names by which it may be asked for.
        frames: Pages that may show it inside of them beside its own, as the policy of a browser names them.
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
                    headers.setdefault(name, value)
            await send(message)

        refusal = None
        if not self.answers(Headers(scope=scope).get("host", "")):
            refusal = PlainTextResponse("calculon is not asked for by this name", 400)
        elif len(scope["path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            refusal = PlainTextResponse("the address is too long", 414)
        await (refusal or self._app)(scope, receive, guarded)

    def answers(self, host: str) -> bool:
        """Return whether a request with this header ``Host`` is answered."""
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
    """Return the names by which a server at an address is asked for: all of this machine, where others reach it."""
    names = {"localhost", host}
    if not is_loopback(host):
        own = {socket.gethostname(), socket.getfqdn()}
        names |= own | {f"{name.partition('.')[0]}.local" for name in own}
    return names


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server that listens at an address."""
    return host == "localhost" or (_is_number(host) and ip_address(host).is_loopback)
