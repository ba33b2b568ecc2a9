"""How the page is served, and connections that are dropped: those that do not complete a request in time."""

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEADERS = 10.0
"""Seconds within which the headers of a request must be complete. A browser sends them at once."""

MOST_CONNECTIONS = 256
"""Connections at a time; further requests are answered with 503. A browser opens six."""


class Patient(H11Protocol):
    """HTTP that closes a connection whose request does not come; uvicorn waits for it without end."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; while it is not complete, the time goes on."""
        super().data_received(data)
        answering: RequestResponseCycle | None = self.cycle  # None until the first request
        if answering is not None and not answering.response_complete:
            self._stop_waiting()
        elif self._waiting is None:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._waiting = self.loop.call_later(HEADERS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def config(page: ASGIApp, **more: Any) -> uvicorn.Config:
    """Return how the page is served, with further settings."""
    return uvicorn.Config(
        page,
        http=Patient,
        limit_concurrency=MOST_CONNECTIONS,
        ws="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        **more,
    )
