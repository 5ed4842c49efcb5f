"""Turn a checked API request into the requests that the engine gets, one for each prompt."""

import asyncio
from collections.abc import Mapping
from typing import Final

from engine.model.chat_template import ChatTemplateError, TemplateMessage
from engine.policy.scheduling_policy import SchedulingPolicy
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.server.openai_errors import InvalidFieldError
from engine.server.openai_requests import COMPLETION_MAX_TOKENS, GenerationAsk, Prompt
from engine.server.served_model import ServedModel
from engine.server.service_level import ServiceLevel
from engine.server.tenant_aliases import TenantAliases
from kvpulse.identity import KeyedHashes

MAX_TOKENS_KEPT: Final = 0xFFFF_FFFE  # what the journal can hold of an asked max_tokens
ANY_TOKEN_ID: Final = 1 << 31  # what a simulation, which has no vocabulary, takes
MAX_RETRY_COUNT: Final = 1000
INLINE_TEXT_CHARS: Final = 2000  # longer texts are encoded off the event loop


class RequestBuilder:
    """Encodes prompts and says who sent them."""

    def __init__(
        self,
        model: ServedModel,
        *,
        policy: SchedulingPolicy,
        tenants: TenantAliases,
        hashes: KeyedHashes,
    ) -> None:
        self._model = model
        self._policy = policy
        self._tenants = tenants
        self._hashes = hashes

    async def build(
        self, ask: GenerationAsk, level: ServiceLevel, headers: Mapping[str, str]
    ) -> list[Request]:
        """Return a request for each prompt; raises InvalidFieldError for one with no tokens."""
        if ask.is_chat:
            prompts = [await self._encode_chat(ask)]
        else:
            prompts = [await self._encode(prompt) for prompt in ask.prompts]
        return [self._request(ask, level, token_ids, headers) for token_ids in prompts]

    def unservable(self, body: Mapping[str, object], headers: Mapping[str, str]) -> Request:
        """Return what stands for a request that cannot be served; the engine refuses it."""
        user = body.get("user")
        # A request without a prompt is one that the engine refuses as invalid.
        return Request(
            tenant=self._tenant(user if isinstance(user, str) else None, headers),
            max_tokens_asked=False,
            retry=retry_count(headers),
            request_hash=self._request_hash(headers),
        )

    async def _encode(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            if len(prompt) > INLINE_TEXT_CHARS:
                token_ids = await asyncio.to_thread(self._model.text.encode, prompt)
            else:
                token_ids = self._model.text.encode(prompt)
        else:
            token_ids = list(prompt)
            largest = max(token_ids)
            if largest >= (self._model.vocab_size or ANY_TOKEN_ID):
                raise InvalidFieldError(f"Token id {largest} is out of vocabulary")
        if not token_ids:
            raise InvalidFieldError("You must pass at least one prompt")
        return token_ids

    async def _encode_chat(self, ask: GenerationAsk) -> list[int]:
        messages: list[TemplateMessage] = list(ask.messages)
        try:
            return await asyncio.to_thread(self._model.text.apply_chat_template, messages)
        except ChatTemplateError as error:
            raise InvalidFieldError(str(error), param="messages") from error

    def _request(
        self,
        ask: GenerationAsk,
        level: ServiceLevel,
        token_ids: list[int],
        headers: Mapping[str, str],
    ) -> Request:
        tenant = self._tenant(ask.user, headers)
        return Request(
            prompt_token_ids=token_ids,
            sampling=self._sampling(ask, self._default_max_tokens(ask, token_ids, tenant)),
            tenant=tenant,
            max_tokens_asked=ask.max_tokens is not None,
            priority=level.priority,
            tier=level.tier,
            retry=retry_count(headers),
            request_hash=self._request_hash(headers),
        )

    def _default_max_tokens(self, ask: GenerationAsk, token_ids: list[int], tenant: str) -> int:
        """Return what is generated if the client does not say: what always fits."""
        room = self._model.room(
            len(token_ids),
            num_sequences=ask.samples.num_sequences,
            most_blocks=self._policy.of_tenant(tenant).max_blocks,
        )
        return room if ask.is_chat else min(COMPLETION_MAX_TOKENS, room)

    def _sampling(self, ask: GenerationAsk, default_max_tokens: int) -> SamplingParams:
        samples = ask.samples
        asked = ask.max_tokens
        return SamplingParams(
            max_tokens=default_max_tokens if asked is None else min(asked, MAX_TOKENS_KEPT),
            temperature=ask.temperature,
            top_p=ask.top_p,
            top_k=ask.top_k,
            seed=ask.seed,
            ignore_eos=ask.ignore_eos,
            n=samples.n,
            best_of=samples.best_of,
            beam_width=samples.beam_width,
            length_penalty=samples.length_penalty,
            early_stopping=samples.early_stopping,
        )

    def _tenant(self, user: str | None, headers: Mapping[str, str]) -> str:
        return self._tenants.resolve(headers.get("x-kvpulse-tenant") or user)

    def _request_hash(self, headers: Mapping[str, str]) -> int:
        client_id = headers.get("x-request-id")
        return self._hashes.request_hash(client_id) if client_id else 0


def retry_count(headers: Mapping[str, str]) -> int:
    """Return how often the client says that it sent the request before."""
    text = headers.get("x-stainless-retry-count", "")
    return min(int(text), MAX_RETRY_COUNT) if text.isdecimal() and len(text) < 10 else 0
