"""A beam search written out plainly, and engines to hold against it."""

from dataclasses import dataclass

import torch

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.engine_loop import Engine
from engine.request import Request
from kvpulse.events import FinishReason
from tests.engine.factories_plain_model import plain_logits


@dataclass(frozen=True)
class Answer:
    """One of a request's best answers."""

    token_ids: list[int]
    total: float
    reason: FinishReason


def plain_beam_search(prompt, sampling, *, window=None):
    """Search with the plain model, which computes every beam's every token anew at every step."""
    width, penalty = sampling.beam_width, sampling.length_penalty
    beams, complete = [(0.0, [])], []

    def keep(total, tokens, reason):
        complete.append((total / len(tokens) ** penalty, Answer(tokens, total, reason)))
        complete.sort(key=lambda scored: -scored[0])
        del complete[width:]

    for length in range(1, sampling.max_tokens + 1):
        longer = []
        for total, tokens in beams:
            logprobs = plain_logits([*prompt, *tokens], window=window)[-1].log_softmax(-1)
            longer += [(total + p, [*tokens, i]) for i, p in enumerate(logprobs.tolist())]
        longer.sort(key=lambda beam: -beam[0])
        for total, tokens in longer[:width]:
            if tokens[-1] in sampling.stop_token_ids:
                keep(total, tokens, FinishReason.STOP)
        beams = [beam for beam in longer if beam[1][-1] not in sampling.stop_token_ids][:width]
        if length == sampling.max_tokens:
            for total, tokens in beams:
                keep(total, tokens, FinishReason.LENGTH)
        elif len(complete) == width and (
            sampling.early_stopping or complete[-1][0] >= beams[0][0] / length**penalty
        ):
            break
    return [answer for _, answer in complete[: sampling.n]]


def tokens_of(events):
    """Gather events into the answers of each request, by its root, best first."""
    answers = {}
    for event in events:
        samples = answers.setdefault(event.root, {})
        tokens, logprobs, _ = samples.get(event.index, ([], [], None))
        samples[event.index] = (
            [*tokens, event.token_id],
            [*logprobs, event.logprob],
            event.finish_reason,
        )
    return {
        root: [
            Answer(tokens, sum(logprobs), reason)
            for _, (tokens, logprobs, reason) in sorted(samples.items())
        ]
        for root, samples in answers.items()
    }


def run_requests(runner, requests, **settings):
    """Run requests to their end; return their answers in order, and the engine's accounts."""
    kv = runner.kv.shape
    config = EngineConfig(
        **({"total_blocks": kv.num_blocks, "block_size": kv.block_size} | settings)
    )
    engine = Engine(config, runner, clock=SystemClock())
    roots = []
    for request in requests:
        admission = engine.submit(request)
        assert admission.rejection is None, admission
        roots.append(admission.seq_id)
    events = []
    while engine.has_work:
        events += engine.step()
        engine.check()
    accounts = engine.accounts()
    engine.close()
    assert accounts.active_blocks == 0
    answers = tokens_of(events)
    return [answers[root] for root in roots], accounts


def seeded_prompt(seed, length):
    """Draw a prompt for the random model."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (length,), generator=generator).tolist()


def requests_of(prompts, sampling):
    """Return a request for each prompt."""
    return [Request(prompt_token_ids=prompt, sampling=sampling) for prompt in prompts]
