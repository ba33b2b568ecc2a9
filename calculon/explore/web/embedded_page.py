"""The page from Python: served by a thread, for a browser or inside a notebook."""

import os
import socket
import sys
import time
from collections.abc import Mapping
from html import escape
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

from calculon.base.errors import Problem, SpecError
from calculon.declarations.files import reason
from calculon.estimate.argument_order import takes_either_order
from calculon.explore.packages import require

if TYPE_CHECKING:
    from starlette.types import ASGIApp

HOST = "127.0.0.1"

_PATIENCE = 10.0
"""Seconds to wait for the server to start or stop."""

_BEAT = 0.01  # seconds between polls

_HEIGHT = 720
"""Height of the page inside a notebook, in pixels."""


class ExplorePage:
    """Page that is served until it is closed; also a context manager.

    Attributes:
        url: Address of the page.
    """

    def __init__(self, app: "ASGIApp", query: str, port: int = 0):
        import uvicorn

        from calculon.explore.web.patience import config

        self._socket = _listening(port)
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}{query}"
        self._server = uvicorn.Server(config(app, lifespan="on", timeout_graceful_shutdown=1))
        sockets = {"sockets": [self._socket]}
        name = f"calculon {self.url}"
        self._thread = Thread(target=self._server.run, kwargs=sockets, name=name, daemon=True)
        self._thread.start()
        # uvicorn has no event for a started server, so poll its flag.
        end = time.monotonic() + _PATIENCE
        while not self._server.started and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(_BEAT)

    def close(self) -> None:
        """Stop serving and free the port; closing again does nothing."""
        self._server.should_exit = True
        self._thread.join(_PATIENCE)
        self._socket.close()

    @property
    def closed(self) -> bool:
        """True if the page is no longer served."""
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ExplorePage {self.url}{', closed' if self.closed else ''}>"

    def _repr_html_(self) -> str:
        address = escape(self.url)
        if self.closed:
            return f'<div class="calculon"><p>The page {address} is closed.</p></div>'
        size = f'width="100%" height="{_HEIGHT}" style="border:0"'
        frame = f'<iframe src="{address}" {size} title="calculon explore"></iframe>'
        link = f'<a href="{address}" target="_blank" rel="noopener">{address}</a>'
        return f'<div class="calculon"><p>{link}</p>{frame}</div>'


@takes_either_order
def explore(
    model: str | os.PathLike[str] = "llama3-70B",
    procs: int | str = 1024,
    system: str | os.PathLike[str] = "h100_80g_sxm",
    *,
    mine: str | Mapping[str, Any] | None = None,
    port: int = 0,
    **words: str | int,
) -> ExplorePage:
    """Open the page of ``calculon explore`` from Python, served in the background and only to this machine.

    Args:
        model, procs, system: Initial question: catalog names or files, and processors (``"1k"`` is 1,024).
        mine: The user's plan, as :func:`calculon.plan` accepts it; by default the best plan is shown.
        port: Port to listen on; 0 takes a free port.
        **words: Further parts of the address: ``batch``, ``seq``, ``dtype``, ``preset``, ``tokens``,
            ``view="pipeline"``.

    Returns:
        The page with its address in ``url``; notebooks show it below the cell. It is served until ``close()``,
        the end of a ``with`` block, or the end of Python.

    Raises:
        SpecError: For malformed input, for a port in use, and if the packages of the page are missing, with the
            command that installs them.

    Examples:
        >>> from calculon import explore
        >>> with explore("llama3-8B", 64, "h100_80g_sxm", view="machine") as page:
        ...     page.url.partition("/?")[2]
        'model=llama3-8B&system=h100_80g_sxm&procs=64&view=machine'
    """
    require("explore")
    from calculon.explore.allowed_inputs import AllowedInputs
    from calculon.explore.answers import Answers
    from calculon.explore.web.initial_state import initial_state
    from calculon.explore.web.page_server import app
    from calculon.explore.web.security import NOTEBOOKS, names_of

    answers = Answers(AllowedInputs(os.fspath(model), os.fspath(system)))
    asked = [(name, str(value)) for name, value in {"procs": procs, **words}.items()]
    first = initial_state(answers, asked, mine)
    page = app(answers, first, names_of(HOST), NOTEBOOKS)
    return ExplorePage(page, first.link(), port)


def _listening(port: int) -> socket.socket:
    """Return a socket listening on a port of this machine.

    Raises:
        SpecError: If the port is in use or invalid.
    """
    result = socket.socket()
    try:
        if sys.platform != "win32":  # there it would share a port in use
            result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        result.bind((HOST, port))
        result.listen()
    except (OSError, OverflowError) as error:
        result.close()
        hint = "0 takes any free port"
        taken = f"{port}: {reason(error)}"
        raise SpecError("explore", Problem("port", "a free port", taken, hint)) from None
    return result
