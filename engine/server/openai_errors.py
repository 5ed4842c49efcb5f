"""Error bodies, statuses and retry headers of the HTTP API, in the shape OpenAI clients expect.

The bodies follow what vLLM 0.32 answers: `{"error": {"message", "type", "param", "code"}}`. The
reason under which the journal records a refusal, and the number of the refused sequence, go into
headers, so that the body keeps that shape.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, Self

from engine.errors import EngineError
from kvpulse.events import RejectReason

MAX_NAME_CHARS: Final = 200  # of what a client calls a model, when it is told back

_TYPES: Final[Mapping[int, str]] = {
    400: "BadRequestError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    413: "RequestTooLargeError",
    500: "InternalServerError",
}


class ApiError(EngineError):
    """A request that gets an error instead of a completion."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.headers = {"x-should-retry": "false", **(headers or {})}

    def recorded_as(self, reason: RejectReason, *, owner: int) -> Self:
        """Say under which reason and sequence number the journal holds it; return itself."""
        self.headers["x-kvpulse-reason"] = reason.name.lower()
        self.headers["x-kvpulse-owner"] = str(owner)
        return self

    def body(self) -> dict[str, object]:
        """Return the JSON body that a client is sent."""
        return {
            "error": {
                "message": self.message,
                "type": _TYPES.get(self.status, HTTPStatus(self.status).phrase),
                "param": self.param,
                "code": self.status,
            }
        }


class InvalidFieldError(ApiError):
    """A field of the request body has a type or value that cannot be served."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(400, message, param=param)


class UnknownModelError(ApiError):
    """The request names a model that this server does not hold."""

    def __init__(self, asked: str, *, served: tuple[str, ...]) -> None:
        known = ", ".join(served)
        shown = asked[:MAX_NAME_CHARS].encode("utf-8", "backslashreplace").decode()
        message = f"The model `{shown}` does not exist. Valid aliases: {known}."
        super().__init__(404, message, param="model")


class EngineFailedError(ApiError):
    """The engine, or the server around it, failed."""

    def __init__(self) -> None:
        message = "The server failed while it served this request; its log says why."
        super().__init__(500, message)
