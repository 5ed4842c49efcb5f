"""What is decided about a request when it arrives."""

import pytest

from engine.request import Request
from engine.sampling_params import SamplingParams
from kvpulse.events import RejectReason
from tests.engine.factories_engine import make_engine, make_request, run_until_done


def test_max_tokens_is_clamped_to_the_context():
    engine = make_engine(max_context=32)
    engine.submit(make_request(20, 500, ignore_eos=True))

    assert len(run_until_done(engine)) == 12


REJECTIONS = [
    (make_request(64, 4), {}, RejectReason.CONTEXT_TOO_LONG, 64, 64, 400),
    (make_request(20, 40), {"total_blocks": 12}, RejectReason.EXCEEDS_POOL, 15, 12, 400),
    (make_request(4, 0), {}, RejectReason.INVALID_REQUEST, 0, 0, 400),
    (make_request(4, 4, temperature=-1.0), {}, RejectReason.INVALID_REQUEST, 0, 0, 400),
    (make_request(4, 4, top_p=0.0), {}, RejectReason.INVALID_REQUEST, 0, 0, 400),
    (
        make_request(4, 4, beam_width=2, length_penalty=1e3),
        {},
        RejectReason.INVALID_REQUEST,
        0,
        0,
        400,
    ),
    (Request(sampling=SamplingParams()), {}, RejectReason.INVALID_REQUEST, 0, 0, 400),
]


@pytest.mark.parametrize(("request_", "limits", "reason", "needed", "limit", "status"), REJECTIONS)
def test_a_request_that_cannot_be_served_is_refused_with_its_reason(
    request_, limits, reason, needed, limit, status
):
    engine = make_engine(**limits)

    admission = engine.submit(request_)

    assert not admission.accepted
    rejection = admission.rejection
    assert (rejection.reason, rejection.needed, rejection.limit) == (reason, needed, limit)
    assert rejection.http_status == status
    assert rejection.message
    assert not engine.has_work
    assert engine.accounts().rejected_by_reason == {reason.name.lower(): 1}


def test_the_longest_prompt_that_leaves_room_for_a_token_is_taken():
    engine = make_engine(max_context=64)

    assert engine.submit(make_request(63, 4)).accepted
    assert len(run_until_done(engine)) == 1


def test_a_full_queue_refuses_and_may_be_tried_again():
    engine = make_engine(max_queue=2)
    engine.submit(make_request())
    engine.submit(make_request())

    rejection = engine.submit(make_request()).rejection

    assert rejection.reason is RejectReason.QUEUE_FULL
    assert (rejection.http_status, rejection.retryable) == (429, True)
    engine.step()
    assert engine.submit(make_request()).accepted


def test_a_draining_engine_refuses_what_comes_and_finishes_what_is_there():
    engine = make_engine()
    engine.submit(make_request(4, 4))
    engine.begin_drain()

    assert engine.submit(make_request()).rejection.reason is RejectReason.SHUTTING_DOWN
    engine.drain()
    assert engine.accounts().finished_by_reason == {"length": 1, "rejected": 1}


@pytest.mark.parametrize("prefix_index", ["hash", "radix"])
@pytest.mark.parametrize("token_id", [-1, 2**32, 2**70])
def test_a_token_id_that_no_vocabulary_has_is_refused_where_none_is_known(token_id, prefix_index):
    engine = make_engine(prefix_index=prefix_index)

    refused = engine.submit(Request(prompt_token_ids=[token_id] * 8)).rejection

    assert refused.reason is RejectReason.INVALID_REQUEST
