"""Listening socket on a free port, the server, and the browser that opens the page."""

import asyncio
import errno
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from calculon.base.errors import Problem, SpecError
from calculon.declarations.files import reason
from calculon.explore.result_cache import share_heaps
from calculon.explore.web.patience import config
from calculon.explore.web.security import is_loopback

TRIED = 20
"""Number of consecutive ports to try before any free port."""

QUIET = 60
"""Seconds for which an idle browser connection is kept open."""


def listening(host: str, port: int, *, only: bool) -> socket.socket:
    """Return a listening socket.

    Args:
        host: Name or number of the address.
        port: Port; 0 for any free port.
        only: True to fail if the port is taken; otherwise the next free one is used.

    Raises:
        SpecError: If it cannot listen.
    """
    # Port 0 at the end lets the system choose if all tried ports are taken.
    ports = [port] if only or not port else [*range(port, min(port + TRIED, 2**16)), 0]
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        wanted = "a name or number of this machine, such as 127.0.0.1 or 0.0.0.0"
        raise SpecError("--host", Problem("", wanted, repr(host))) from None
    for one in ports:
        result = socket.socket(family, kind, protocol)
        try:
            # Without SO_REUSEADDR, a restart would find the port taken by closed connections for a minute.
            result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            result.bind((place[0], one, *place[2:]))
            result.listen(2_048)
        except OSError as error:
            result.close()
            if error.errno == errno.EADDRINUSE and one != ports[-1]:
                continue
            raise _refused(host, one, error) from None
        return result
    raise AssertionError("some port was tried last")


def _refused(host: str, port: int, error: OSError) -> SpecError:
    if error.errno == errno.EADDRINUSE:
        hint = "leave out --port, and the next free one is taken"
        return SpecError("--port", Problem("", "a free port", f"{port} in use", hint))
    if error.errno in (errno.EACCES, errno.EPERM):
        return SpecError("--port", Problem("", "a port from 1024 on", str(port)))
    wanted = "an address of this machine, such as 127.0.0.1 or 0.0.0.0"
    return SpecError("--host", Problem("", wanted, f"{host!r} ({reason(error)})"))


def address_of(listener: socket.socket, host: str) -> str:
    """Return the address of a socket's page for browsers."""
    port = listener.getsockname()[1]
    if not is_loopback(host) and host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    page: ASGIApp, listener: socket.socket, endings: Collection[signal.Signals] = ()
) -> int | None:
    """Serve a page until a signal ends the program.

    Args:
        page: The application.
        listener: The listening socket.
        endings: Signals that end the server. Their handlers are suspended meanwhile, since an exception raised by one
            would hit the request being answered and be lost there.

    Returns:
        The number of the received signal of `endings`; None if the server ended by itself.

    Raises:
        KeyboardInterrupt: For Ctrl-C.
    """
    share_heaps()
    came: list[int] = []

    async def served() -> None:
        loop = asyncio.get_running_loop()
        settings = {"lifespan": "off", "loop": "asyncio", "proxy_headers": False}
        server = _Server(config(page, timeout_keep_alive=QUIET, **settings))
        own = asyncio.ensure_future(server.serve([listener]))

        def end(number: int) -> None:
            came.append(number)
            own.cancel()

        for number in endings:
            loop.add_signal_handler(number, end, number)
        try:
            await own
        except asyncio.CancelledError:
            if not came:  # Ctrl-C: asyncio turns it into KeyboardInterrupt
                raise

    before = {number: signal.getsignal(number) for number in endings}
    try:
        asyncio.run(served())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return came[0] if came else None


class _Server(uvicorn.Server):
    """Server that leaves signal handling to the program."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def has_browser() -> bool:
    """Return True if a graphical browser is available: not through ssh, and not a text browser in the terminal."""
    if os.environ.get("BROWSER"):
        return True
    if sys.platform in ("darwin", "win32"):
        return not os.environ.get("SSH_CONNECTION")
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_browser(address: str) -> None:
    """Open an address in the browser while the page is served."""
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
