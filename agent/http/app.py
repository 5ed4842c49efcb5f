"""The agent's HTTP side: metrics, health and the live state, for scrapers, probes and people.

What is live is read from one `LiveView` and touches neither journal nor store, so that a slow or
broken store never hides the reason from whoever asks. Only the APIs for baselines and incidents ask
the store.
"""

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from agent.baseline_desk import BaselineDesk
from agent.http.baselines import baseline_routes
from agent.http.guard import HostGuard
from agent.http.health import judge
from agent.http.incidents import incident_routes
from agent.http.live_status import readiness_document, status_document
from agent.incidents.desk import IncidentDesk
from agent.live_view import LiveView
from agent.metrics.exporter import exporter_registry
from agent.price import Price

LOGGER: Final = logging.getLogger(__name__)

INDEX: Final = """kvpulse agent

/metrics     Prometheus metrics; every name is explained in docs/metrics.md
/healthz     200 while the process answers
/readyz      200 when engines are fresh, the lag is bounded and the store takes writes; else 503
/api/status  the live state of every engine, as JSON
/api/baselines, /api/comparison   saved baselines; docs/baselines.md says how
/api/incidents   what is or was wrong, and who acknowledged it; docs/incidents.md says how
"""


def create_app(
    view: LiveView,
    *,
    allowed_hosts: Collection[str] = (),
    token: str | None = None,
    price: Price | None = None,
    baselines: BaselineDesk | None = None,
    incidents: IncidentDesk | None = None,
    wall_clock: Callable[[], int] = time.time_ns,
) -> ASGIApp:
    """Build the ASGI application.

    Args:
        view: What the agent's loop publishes.
        allowed_hosts: Host names answered beside loopback ones, such as a container's.
        token: What a client must send as `Authorization: Bearer …`; None: nothing.
        price: What GPUs cost; None: nobody said.
        baselines: Who saves and compares; None: those paths are not there.
        incidents: Who tells of them and takes acknowledgements; None: the same, and no metrics.
        wall_clock: Nanoseconds since 1970.
    """
    board = incidents.board if incidents else None
    registry = exporter_registry(view, wall_clock, price, board)

    def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type})

    def readyz(_: Request) -> Response:
        readiness = judge(view.snapshot(), wall_clock())
        code = 200 if readiness.is_ready else 503
        return JSONResponse(readiness_document(readiness), status_code=code)

    def status(_: Request) -> Response:
        return JSONResponse(status_document(view.snapshot(), wall_clock(), price))

    app = Starlette(
        routes=[
            Route("/", _index),
            Route("/metrics", metrics),
            Route("/healthz", _healthz),
            Route("/readyz", readyz),
            Route("/api/status", status),
            *(baseline_routes(baselines) if baselines else ()),
            *(incident_routes(incidents) if incidents else ()),
        ],
        exception_handlers={Exception: _internal_error},
    )
    return HostGuard(
        app, allowed_hosts, token=token
    )  # outermost, so that an error carries the headers too


def _index(_: Request) -> Response:
    return PlainTextResponse(INDEX)


def _healthz(_: Request) -> Response:
    return PlainTextResponse("ok\n")


def _internal_error(request: Request, error: Exception) -> Response:
    LOGGER.error("answering %s failed", request.url.path, exc_info=error)
    return PlainTextResponse("internal error; the agent's log says more\n", status_code=500)
