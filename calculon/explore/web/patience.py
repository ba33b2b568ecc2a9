"""HTTP server settings, with a limit on idle connections and incomplete requests."""

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEADERS = 10.0
"""Seconds within which request headers must arrive. Browsers send them immediately."""

MAX_CONNECTIONS = 256
"""Maximum number of connections; further requests get status 503. A browser opens six."""


class Patient(H11Protocol):
    """HTTP protocol that closes a connection without a complete request; uvicorn would wait for it forever."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the first request."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Receive part of a request; the timeout continues until the request is complete."""
        super().data_received(data)
        answering: RequestResponseCycle | None = self.cycle  # None until the first request
        if answering is not None and not answering.response_complete:
            self._stop_waiting()
        elif self._waiting is None:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._waiting = self.loop.call_later(HEADERS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def config(page: ASGIApp, **more: Any) -> uvicorn.Config:
    """Return the server configuration with further settings."""
    return uvicorn.Config(
        page,
        http=Patient,
        limit_concurrency=MAX_CONNECTIONS,
        ws="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        **more,
    )
