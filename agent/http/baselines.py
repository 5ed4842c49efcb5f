"""The agent's API for baselines and comparisons; see docs/baselines.md.

`GET /api/baselines`, `POST /api/baselines`, `GET` and `DELETE /api/baselines/NAME`,
`GET /api/comparison`, `GET /api/recording`. The dashboard never writes the store: it asks here.
"""

import math
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agent.baseline_desk import DEFAULT_SECONDS, BaselineDesk, Sides
from agent.baselines.document import Document, comparison_document, side_document
from agent.baselines.errors import (
    BaselineBusy,
    BaselineDamaged,
    BaselineExists,
    BaselineNotFound,
    BaselineRefused,
    RecordingGone,
)
from agent.errors import AgentError
from agent.http.changes import check_no_page, read_object
from agent.http.told import told
from agent.reads.baselines import BaselineRow, StoredBaseline
from kvpulse.recording_file import recording_bytes

_STATUS: Final[dict[type[AgentError], int]] = {
    BaselineNotFound: 404,
    BaselineExists: 409,
    BaselineBusy: 503,
    BaselineDamaged: 500,
    BaselineRefused: 400,
    RecordingGone: 410,
}
MOST_ENGINE_CHARACTERS: Final = 256
MOST_DIGITS: Final = 19


def baseline_routes(desk: BaselineDesk) -> list[Route]:
    """Return the API's paths."""

    async def save(request: Request) -> Response:
        said = await read_object(request)
        stored = await run_in_threadpool(
            lambda: desk.save(
                said.get("name"),
                engine=_engine(said.get("engine")),
                last_seconds=_seconds(said.get("last_seconds")),
                end_ns=_moment(said.get("end_ns")),
            )
        )
        return JSONResponse(stored_document(stored), status_code=201)

    async def listing(_: Request) -> Response:
        rows = await run_in_threadpool(desk.rows)
        return JSONResponse({"baselines": [row_document(row) for row in rows]})

    async def show(request: Request) -> Response:
        stored = await run_in_threadpool(desk.show, request.path_params["name"])
        return JSONResponse(stored_document(stored))

    async def delete(request: Request) -> Response:
        check_no_page(request)
        await run_in_threadpool(desk.delete, request.path_params["name"])
        return JSONResponse({"deleted": request.path_params["name"]})

    async def comparison(request: Request) -> Response:
        asked = request.query_params
        sides = Sides(
            asked.get("first"),
            asked.get("second"),
            _seconds(asked.get("last_seconds")),
            _engine(asked.get("engine")),
        )
        return JSONResponse(comparison_document(await run_in_threadpool(desk.compare, sides)))

    async def recording(request: Request) -> Response:
        asked = request.query_params
        found = await run_in_threadpool(
            desk.recording,
            _engine(asked.get("engine")) or "",
            _nanoseconds("start_ns", asked.get("start_ns")),
            _nanoseconds("end_ns", asked.get("end_ns")),
        )
        content = await run_in_threadpool(recording_bytes, found)
        return Response(content, media_type="application/octet-stream")

    return [
        Route("/api/baselines", told(listing, _STATUS), methods=["GET"]),
        Route("/api/baselines", told(save, _STATUS), methods=["POST"]),
        Route("/api/baselines/{name}", told(show, _STATUS), methods=["GET"]),
        Route("/api/baselines/{name}", told(delete, _STATUS), methods=["DELETE"]),
        Route("/api/comparison", told(comparison, _STATUS), methods=["GET"]),
        Route("/api/recording", told(recording, _STATUS), methods=["GET"]),
    ]


def row_document(row: BaselineRow) -> Document:
    """Return what a list shows of a baseline."""
    return {
        "name": row.name,
        "engine": row.engine,
        "start_ns": row.start_at_ns,
        "end_ns": row.end_at_ns,
        "saved_ns": row.saved_at_ns,
        "counted_ratio": row.completeness.counted_ratio,
        "figures": row.figures,
    }


def stored_document(stored: StoredBaseline) -> Document:
    """Return a baseline with all that stands beside its figures."""
    beside = side_document(stored.side)
    return {**row_document(stored.row), **beside, "fingerprint": stored.row.fingerprint}


def _seconds(said: object) -> float:
    if said is None:
        return DEFAULT_SECONDS
    try:
        seconds = float(said) if isinstance(said, str | int | float) else math.nan
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 1e9:
        raise BaselineRefused("last_seconds: accepted is a number of seconds above 0")
    return seconds


def _nanoseconds(name: str, said: str | None) -> int:
    if said is None or not said.isascii() or not said.isdigit() or len(said) > MOST_DIGITS:
        raise BaselineRefused(f"{name}: accepted are whole nanoseconds since 1970, UTC")
    return min(int(said), 2**63 - 1)


def _moment(said: object) -> int | None:
    if said is None or (type(said) is int and 0 < said < 2**63):
        return said
    raise BaselineRefused("end_ns: accepted are whole nanoseconds since 1970, UTC")


def _engine(said: object) -> str | None:
    if said is None or (isinstance(said, str) and len(said) <= MOST_ENGINE_CHARACTERS):
        return said or None
    raise BaselineRefused("engine: accepted is an engine's name")
