"""Which choice a token goes to, which samples are the best, and what ends what."""

import asyncio

import pytest

from engine.admission import Rejection
from engine.request import Request
from engine.runner import NO_TOKEN
from engine.sampling_params import SamplingParams
from engine.server.choice_writer import ChoiceWriter
from engine.server.generation import Generation, PromptAnswers
from engine.server.live_requests import LiveRequest, LiveRequests, Refused, num_answers
from engine.server.openai_errors import ApiError
from engine.server.request_times import RequestTimes
from engine.server.stop_strings import StopStrings
from engine.token_event import TokenEvent
from kvpulse.events import FinishReason, RejectReason


class Letters:
    """Text of a letter for each token."""

    def push(self, token_id: int) -> str:
        return "abcdefgh"[token_id]

    def flush(self) -> str:
        return ""


class ScriptedEngine:
    """Stands in for the engine's thread: takes every request, says what the test scripts."""

    def __init__(self) -> None:
        self.live: list[LiveRequest] = []
        self.stopped: list[int] = []
        self.cancelled: list[int] = []

    async def submit(self, request: Request, live: LiveRequest, times: RequestTimes) -> None:
        live.root = 10 * (len(self.live) + 1)
        self.live.append(live)

    def stop(self, live: LiveRequest, seq_id: int) -> None:
        self.stopped.append(seq_id)

    def cancel(self, live: LiveRequest) -> None:
        self.cancelled.append(live.root)

    def say(
        self,
        prompt: int,
        sample: int,
        token_id: int,
        reason: FinishReason | None = None,
        logprob: float = 0.0,
    ) -> None:
        live = self.live[prompt]
        seq_id = live.root + sample
        live.put(TokenEvent(seq_id, token_id, reason, live.root, sample, logprob))


def _generation(
    engine: ScriptedEngine,
    *,
    prompts: int = 1,
    n: int = 1,
    best_of: int = 0,
    stop: tuple[str, ...] = (),
) -> Generation:
    sampling = SamplingParams(n=n, best_of=best_of or n)
    per_prompt = sampling.num_sequences
    answers = [
        PromptAnswers(
            Request(prompt_token_ids=[1, 2], sampling=sampling),
            [
                ChoiceWriter(at * per_prompt + i, Letters(), StopStrings(stop))
                for i in range(per_prompt)
            ],
        )
        for at in range(prompts)
    ]
    return Generation(engine, answers, RequestTimes(0))


def _word(token_id: int) -> str:
    return Letters().push(token_id)


def test_samples_of_several_prompts_are_numbered_prompt_by_prompt():
    async def run() -> None:
        engine = ScriptedEngine()
        generation = _generation(engine, prompts=2, n=2)
        await generation.submit()
        for prompt, sample in ((1, 1), (0, 1), (1, 0), (0, 0)):
            engine.say(prompt, sample, prompt * 2 + sample, FinishReason.LENGTH)

        choices = await generation.whole()

        assert [choice.index for choice in choices] == [0, 1, 2, 3]
        assert [choice.text for choice in choices] == [_word(i) for i in range(4)]
        assert generation.owners == [10, 11, 20, 21]
        assert (generation.usage.prompt_tokens, generation.usage.completion_tokens) == (4, 4)

    asyncio.run(run())


def test_the_best_samples_are_those_of_the_highest_log_probability_per_token():
    async def run() -> None:
        engine = ScriptedEngine()
        generation = _generation(engine, n=2, best_of=3)
        await generation.submit()
        engine.say(0, 0, 0, FinishReason.LENGTH, -2.0)
        # The longer one has the lower sum and the higher mean.
        engine.say(0, 1, 1, None, -1.5)
        engine.say(0, 1, 1, FinishReason.LENGTH, -1.5)
        engine.say(0, 2, 2, FinishReason.LENGTH, -1.0)

        choices = await generation.whole()

        assert [choice.text for choice in choices] == [_word(2), _word(1) * 2]
        assert [choice.index for choice in choices] == [0, 1]
        assert generation.usage.completion_tokens == 4

    asyncio.run(run())


def test_a_stop_string_ends_its_own_sample_and_no_other():
    async def run() -> None:
        engine = ScriptedEngine()
        generation = _generation(engine, n=2, stop=(_word(3),))
        await generation.submit()
        engine.say(0, 0, 0)
        engine.say(0, 1, 1)
        engine.say(0, 1, 3)
        engine.say(0, 1, 4)  # was under way when the stop string was found
        engine.say(0, 0, 5, FinishReason.LENGTH)

        first, second = await generation.whole()

        assert (first.text, first.finish_reason) == (_word(0) + _word(5), "length")
        assert (second.text, second.finish_reason) == (_word(1), "stop")
        assert engine.stopped == [11]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("reason", "status", "header"),
    [
        (FinishReason.TIMEOUT, 504, "deadline"),
        (FinishReason.CANCELLED, 503, "shutting_down"),
        (FinishReason.ERROR, 500, None),
    ],
)
def test_a_bad_end_before_the_first_token_is_an_error_with_a_status(reason, status, header):
    async def run() -> None:
        engine = ScriptedEngine()
        generation = _generation(engine, n=2)
        await generation.submit()
        engine.say(0, 0, NO_TOKEN, reason)

        with pytest.raises(ApiError) as caught:
            await generation.begun()

        assert caught.value.status == status
        assert caught.value.headers.get("x-kvpulse-reason") == header

    asyncio.run(run())


def test_a_late_rejection_says_its_own_reason_and_when_to_come_back():
    async def run() -> None:
        engine = ScriptedEngine()
        generation = _generation(engine)
        await generation.submit()
        rejection = Rejection(RejectReason.POOL_TIMEOUT, 9, 4, "waited for blocks")
        engine.live[0].refused = Refused(rejection, 12)
        engine.say(0, 0, NO_TOKEN, FinishReason.REJECTED)

        with pytest.raises(ApiError) as caught:
            await generation.whole()

        assert caught.value.status == 503
        assert caught.value.headers["retry-after"] == "12"
        assert caught.value.headers["x-kvpulse-reason"] == "pool_timeout"
        assert caught.value.headers["x-kvpulse-owner"] == "10"

    asyncio.run(run())


def _live(num: int, requests: LiveRequests, root: int = 5) -> LiveRequest:
    live = LiveRequest(0, asyncio.Queue(), num_answers=num)
    requests.add(live, root)
    return live


def _ended(root: int, index: int, reason: FinishReason) -> TokenEvent:
    return TokenEvent(root + index, NO_TOKEN, reason, root, index)


def test_a_request_lives_until_its_last_sample_has_ended():
    requests = LiveRequests()
    live = _live(3, requests)

    assert requests.route(_ended(5, 1, FinishReason.LENGTH)) is live
    requests.sample_ended(live)  # by a stop string
    assert requests.holds(live)
    assert requests.route(_ended(5, 0, FinishReason.STOP)) is live

    assert not requests.holds(live)
    assert requests.route(_ended(5, 2, FinishReason.LENGTH)) is None
    assert not requests.drop(live)


@pytest.mark.parametrize(
    "reason", [FinishReason.TIMEOUT, FinishReason.REJECTED, FinishReason.ERROR]
)
def test_a_bad_end_of_one_sample_is_the_end_of_the_request(reason):
    requests = LiveRequests()
    live = _live(3, requests)

    assert requests.route(_ended(5, 0, reason)) is live

    assert not requests.holds(live)
    assert requests.route(_ended(5, 1, FinishReason.LENGTH)) is None


def test_an_event_that_names_no_root_belongs_to_its_own_sequence():
    requests = LiveRequests()
    live = _live(1, requests, root=7)

    assert requests.route(TokenEvent(7, 3, None)) is live
    assert [item.request for item in requests.end_all(FinishReason.ERROR)] == [live]
    assert not requests.holds(live)


@pytest.mark.parametrize(
    ("sampling", "answers"),
    [
        (SamplingParams(), 1),
        (SamplingParams(n=3, best_of=3), 3),
        (SamplingParams(n=2, best_of=5), 5),
        (SamplingParams(n=2, beam_width=6), 2),
    ],
)
def test_every_sample_has_an_end_and_of_beams_only_the_best(sampling, answers):
    assert num_answers(sampling) == answers
