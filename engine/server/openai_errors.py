"""Error bodies, statuses and retry headers of the HTTP API, in the shape OpenAI clients expect.

The bodies follow what vLLM 0.32 answers: `{"error": {"message", "type", "param", "code"}}`. The
reason under which the journal records a refusal goes into a header, so that the body keeps that
shape.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from engine.errors import EngineError
from kvpulse.events import REJECT_RULES, RejectReason

RETRY_AFTER_SECONDS: Final = 1
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


def refusal(reason: RejectReason, *, needed: int, limit: int) -> ApiError:
    """Return the error for a request that the engine refused.

    Args:
        reason: why; it decides the status and whether a client should try again.
        needed: what the request asks for, in the reason's own unit (tokens or blocks).
        limit: what there is of it.
    """
    rule = REJECT_RULES[reason]
    message, param = _explain(reason, needed=needed, limit=limit)
    headers = {"x-kvpulse-reason": reason.name.lower()}
    if rule.retryable:
        headers["retry-after"] = str(RETRY_AFTER_SECONDS)
        headers["x-should-retry"] = "true"
    return ApiError(rule.http_status, message, param=param, headers=headers)


def _explain(reason: RejectReason, *, needed: int, limit: int) -> tuple[str, str | None]:
    match reason:
        case RejectReason.CONTEXT_TOO_LONG:
            return (
                f"This model's maximum context length is {limit} tokens. However, your prompt "
                f"contains {needed} input tokens, which exceeds this limit even without any "
                "output tokens. Please reduce the length of the input prompt. "
                f"(parameter=input_tokens, value={needed})",
                "input_tokens",
            )
        case RejectReason.EXCEEDS_POOL:
            return (
                f"This request needs {needed} KV cache blocks, but the pool has {limit} in all, so "
                "it can never be served here. Shorten the prompt or lower max_tokens.",
                "max_tokens",
            )
        case RejectReason.EXCEEDS_QUOTA:
            return (
                f"This request alone needs {needed} KV cache blocks, but its tenant may hold "
                f"{limit}. Shorten the prompt or lower max_tokens.",
                "max_tokens",
            )
        case RejectReason.INVALID_REQUEST:
            return "The engine cannot serve this request as it was asked.", None
        case RejectReason.SHUTTING_DOWN:
            return "The server is shutting down. Please try again later or elsewhere.", None
        case _:
            return (
                "The engine is currently busy and cannot accept new requests. Please try again "
                "later or on a different instance.",
                None,
            )
