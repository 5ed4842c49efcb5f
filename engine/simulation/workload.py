"""A seeded workload of the shape of Mooncake's conversation trace, for where no trace is at hand.

Conversations of several turns over a long document or history: each turn repeats the earlier ones
and adds to them; all of a tenant begin with its system prompt. Prompt lengths are lognormal around
12,900 tokens, outputs around 345, arrivals bursty. A few clients leave, a few prompts are longer
than any context, a few ask for more than any pool.
"""

import random
from dataclasses import dataclass
from typing import Final

from engine.request import Request, SimulatedContent
from engine.sampling_params import SamplingParams
from engine.simulation.trace import Trace, TraceRow
from engine.simulation.trace_requests import RequestMaker, TimedRequest

TOKENS_PER_ID: Final = 512
SYSTEM_PROMPT_IDS: Final = 1


@dataclass(frozen=True, slots=True)
class WorkloadShape:
    """What the workload looks like.

    Attributes:
        requests_per_second: Mean arrival rate; each second's is drawn around it.
        scale: Factor on prompt lengths: 1 is Mooncake's, smaller ones suit small pools.
    """

    num_requests: int = 6_000
    requests_per_second: float = 3.2
    num_tenants: int = 8
    scale: float = 1.0
    cancel_ratio: float = 0.03
    too_long_ratio: float = 0.003
    never_fits_ratio: float = 0.003
    max_context: int = 131_072
    seed: int = 20_261_130


def make_workload(shape: WorkloadShape, *, block_size: int) -> list[TimedRequest]:
    """Return the requests in order of arrival; the same shape gives the same ones."""
    source = random.Random(shape.seed)
    trace = Trace(_rows(shape, source), TOKENS_PER_ID)
    maker = RequestMaker(block_size, num_tenants=shape.num_tenants, seed=shape.seed)
    return [_with_trouble(timed, shape, source) for timed in maker.requests(trace)]


def _rows(shape: WorkloadShape, source: random.Random) -> list[TraceRow]:
    open_talks: list[list[int]] = []
    next_id = SYSTEM_PROMPT_IDS
    now_ns = 0
    rows = []
    for _ in range(shape.num_requests):
        rate = shape.requests_per_second * source.choice((0.4, 0.7, 1.0, 1.0, 1.9))
        now_ns += int(source.expovariate(rate) * 1e9)
        new_tokens = int(source.lognormvariate(8.3, 1.0) * shape.scale) + 16
        new_ids = -(-new_tokens // TOKENS_PER_ID)
        if open_talks and source.random() < 0.5:
            talk = open_talks.pop(source.randrange(len(open_talks)))
            # The last id may have been partial; the longer prompt names that stretch anew.
            talk = talk[:-1] if len(talk) > SYSTEM_PROMPT_IDS + 1 else talk
        else:
            talk = list(range(SYSTEM_PROMPT_IDS))
        talk = talk + list(range(next_id, next_id + new_ids))
        next_id += new_ids
        most_ids = max(2, int(shape.max_context * 0.9 * min(shape.scale, 1.0)) // TOKENS_PER_ID)
        talk = talk[:most_ids]
        prompt = len(talk) * TOKENS_PER_ID - source.randrange(TOKENS_PER_ID - 16)
        output = min(2_000, int(source.lognormvariate(5.3, 1.0)) + 1)
        rows.append(TraceRow(now_ns, prompt, output, tuple(talk)))
        if len(talk) < most_ids:
            open_talks.append(talk)
        if len(open_talks) > 200:
            open_talks.pop(0)
    return rows


def _with_trouble(timed: TimedRequest, shape: WorkloadShape, source: random.Random) -> TimedRequest:
    """Return the request, or what a troublesome client makes of it."""
    chance = source.random()
    if chance < shape.too_long_ratio:
        content = SimulatedContent(shape.max_context + 1 + source.randrange(9_999), 16)
        return TimedRequest(timed.at_ns, Request(tenant=timed.request.tenant, simulated=content))
    chance -= shape.too_long_ratio
    if chance < shape.never_fits_ratio:
        sampling = SamplingParams(max_tokens=shape.max_context)
        content = SimulatedContent(shape.max_context // 2, 16)
        request = Request(sampling=sampling, tenant=timed.request.tenant, simulated=content)
        return TimedRequest(timed.at_ns, request)
    chance -= shape.never_fits_ratio
    if chance < shape.cancel_ratio:
        leaves_ns = timed.at_ns + int(source.expovariate(1 / 4) * 1e9) + 1
        return TimedRequest(timed.at_ns, timed.request, leaves_ns)
    return timed
