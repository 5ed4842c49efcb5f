"""What a client is told whose request the engine refused or ended: every reason of the journal."""

from engine.admission import Rejection
from engine.server.openai_errors import ApiError
from kvpulse.events import REJECT_RULES, RejectReason


def refusal(rejection: Rejection, *, retry_after_seconds: int, owner: int) -> ApiError:
    """Return the error for a request that the engine refused.

    Args:
        rejection: Why; the reason decides the status and whether a client should try again.
        retry_after_seconds: When, if it should.
        owner: The number under which the engine recorded the refusal.
    """
    reason = rejection.reason
    rule = REJECT_RULES[reason]
    message, param = _explain(rejection)
    headers = {}
    if rule.retryable:
        headers["retry-after"] = str(retry_after_seconds)
        headers["x-should-retry"] = "true"
    error = ApiError(rule.http_status, message, param=param, headers=headers)
    return error.recorded_as(reason, owner=owner)


def _explain(rejection: Rejection) -> tuple[str, str | None]:
    needed, limit = rejection.needed, rejection.limit
    match rejection.reason:
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
            return f"The engine cannot serve this request: {rejection.message}.", None
        case _:
            return _explain_retryable(rejection.reason), None


def _explain_retryable(reason: RejectReason) -> str:
    match reason:
        case RejectReason.SHUTTING_DOWN:
            return "The server is shutting down. Please try again later or elsewhere."
        case RejectReason.POOL_TIMEOUT:
            return (
                "The request waited for room in the KV cache for as long as it may wait. Please "
                "try again later or on a different instance."
            )
        case RejectReason.DEADLINE:
            return "The request's time was over before it could be served. Please try again later."
        case RejectReason.ABOVE_WATERMARK:
            return (
                "The KV cache is nearly full and takes no new requests at present. Please try "
                "again later or on a different instance."
            )
        case RejectReason.OUT_OF_MEMORY:
            return "There is no memory to serve this request at present. Please try again later."
        case _:
            return (
                "The engine is currently busy and cannot accept new requests. Please try again "
                "later or on a different instance."
            )
