"""The agent's API for incidents; see docs/incidents.md.

`GET /api/incidents`, `GET /api/incidents/ID`, `POST /api/incidents/ID/acknowledgement`.
"""

from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agent.errors import AgentError, IncidentDamaged, IncidentNotFound, IncidentRefused
from agent.http.changes import read_object
from agent.http.told import told
from agent.incidents.desk import MOST_KEY, IncidentDesk, checked_key
from agent.incidents.document import incident_document, row_document
from agent.reads.incidents import MOST_ROWS, IncidentFilter

_STATUS: Final[dict[type[AgentError], int]] = {
    IncidentNotFound: 404,
    IncidentRefused: 400,
    IncidentDamaged: 500,
}
STATES: Final = {"open": True, "closed": False, "all": None}
MOST_ENGINE_CHARACTERS: Final = 256
DEFAULT_ROWS: Final = 100


def incident_routes(desk: IncidentDesk) -> list[Route]:
    """Return the API's paths."""

    async def listing(request: Request) -> Response:
        rows = await run_in_threadpool(desk.rows, _filter(request.query_params))
        return JSONResponse({"incidents": [row_document(row) for row in rows]})

    async def show(request: Request) -> Response:
        key = checked_key(request.path_params["key"])
        return JSONResponse(incident_document(await run_in_threadpool(desk.show, key)))

    async def acknowledge(request: Request) -> Response:
        said = await read_object(request)
        key = checked_key(request.path_params["key"])
        stored = await run_in_threadpool(
            lambda: desk.acknowledge(key, by=said.get("by"), note=said.get("note"))
        )
        return JSONResponse(incident_document(stored))

    one = "/api/incidents/{key}"
    return [
        Route("/api/incidents", told(listing, _STATUS), methods=["GET"]),
        Route(one, told(show, _STATUS), methods=["GET"]),
        Route(f"{one}/acknowledgement", told(acknowledge, _STATUS), methods=["POST"]),
    ]


def _filter(asked: QueryParams) -> IncidentFilter:
    engine = asked.get("engine") or None
    if engine is not None and len(engine) > MOST_ENGINE_CHARACTERS:
        raise IncidentRefused("engine: accepted is an engine's name")
    state = asked.get("state", "all")
    if state not in STATES:
        raise IncidentRefused(f"state: accepted is one of {', '.join(STATES)}")
    return IncidentFilter(
        engine=engine,
        is_open=STATES[state],
        since_ns=_number("since_ns", asked.get("since_ns"), MOST_KEY),
        limit=_number("limit", asked.get("limit"), MOST_ROWS) or DEFAULT_ROWS,
    )


def _number(name: str, said: str | None, most: int) -> int | None:
    if said is None:
        return None
    is_number = said.isascii() and said.isdecimal() and len(said) <= 19
    if not is_number or int(said) > most:
        raise IncidentRefused(f"{name}: accepted is a whole number up to {most}")
    return int(said)
