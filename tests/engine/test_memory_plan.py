"""How many blocks fit, and the smallest change when what was asked for does not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory_plan import (
    MemoryPlanError,
    MemoryRequest,
    Reserve,
    activation_bytes,
    bytes_in_words,
    changes_that_fit,
    plan_memory,
)

MIB = 2**20
GIB = 2**30
# Bytes of a token of SmolLM2 in each format; tests/engine/test_kv_bytes.py has the formula.
OF_SMOLLM2 = {"fp32": 46_080, "bf16": 23_040, "int8": 12_240, "fp8": 11_520}


def make_request(**fields):
    chosen = {
        "memory_bytes": GIB,
        "kv_format": "fp32",
        "bytes_per_token": OF_SMOLLM2,
        "block_size": 16,
        "max_context": 8192,
        "reserves": (Reserve("weights", 600 * MIB), Reserve("activations", 24 * MIB, True)),
        **fields,
    }
    return MemoryRequest(**chosen)


def test_a_windowed_context_needs_what_window_and_one_step_hold():
    request = make_request(max_context=1_000_000, windows=(4_096,), chunk_tokens=2_048)

    plan = plan_memory(request)

    # ceil((4096 + 2048 - 2) / 16) + 1 blocks.
    assert request.num_blocks_needed == 385
    assert plan.lines[-1].endswith(f"{plan.num_blocks / 385:.1f} sequences of 1,000,000")


def test_the_pool_takes_what_is_left_of_memory():
    plan = plan_memory(make_request(max_context=4096))

    left = GIB - 624 * MIB
    assert plan.num_blocks == left // (16 * 46_080) == 568
    assert plan.cache_bytes == 568 * 16 * 46_080


def test_attention_gets_its_workspace_beside_each_token():
    plan = plan_memory(make_request(max_context=4096, workspace_bytes_per_token=1536))

    assert plan.num_blocks == (GIB - 624 * MIB) // (16 * (46_080 + 1536))


def test_the_plan_explains_itself_line_by_line_with_numbers_and_units():
    plan = plan_memory(make_request(max_context=4096, source="half of this machine's free memory"))

    assert plan.lines == (
        "half of this machine's free memory: 1.00 GiB",
        "  - weights: 600.00 MiB",
        "  - activations: 24.00 MiB",
        "  = left for the KV cache: 400.00 MiB",
        "a token in fp32: 46,080 bytes over all layers",
        "a block of 16 tokens: 720.00 KiB",
        "568 blocks, as many as fit: 9,088 tokens, 2.2 sequences of 4,096",
    )


def test_asked_for_blocks_are_given_as_they_are_when_they_fit():
    plan = plan_memory(make_request(num_blocks=100, max_context=1_000_000))

    assert plan.num_blocks == 100
    assert "100 blocks, as asked" in plan.lines[-1]


def test_what_does_not_fit_is_told_the_smallest_change_first_and_then_the_others():
    with pytest.raises(MemoryPlanError) as refused:
        plan_memory(make_request(max_context=9_200))

    assert str(refused.value) == (
        "one sequence of 9,200 tokens (575 blocks of 16 tokens) in fp32 takes 404.30 MiB, and "
        "400.00 MiB is left of 1.00 GiB. "
        "The smallest change that fits: 1.00 GiB of memory (--memory 1078247424). "
        "Or: at most 9,088 tokens of context (--max-context 9088); "
        "at most 19.70 MiB for activations and workspace (a smaller --token-budget or "
        "--max-batch); keep the cache in bf16 (--kv-format bf16)."
    )


def test_a_context_of_one_token_too_many_is_told_to_be_one_token_shorter():
    block_bytes = 16 * 46_080
    request = make_request(max_context=145, memory_bytes=9 * block_bytes + 1, reserves=())
    (first, *_) = changes_that_fit(request)

    assert (first.setting, first.value) == ("max_context", 144)
    assert first.size_ratio == pytest.approx(1 / 145)


def test_memory_that_falls_short_of_a_few_bytes_is_told_so():
    request = make_request(max_context=16, block_size=16, reserves=(Reserve("weights", GIB - 9),))
    (change, *_) = changes_that_fit(request)

    assert (change.setting, change.value) == ("memory", GIB + 16 * 46_080 - 9)
    assert change.size_ratio < 0.001


def test_the_widest_narrower_format_that_fits_is_named():
    formats = {
        change.value
        for change in changes_that_fit(make_request(max_context=10_000))
        if change.setting == "kv_format"
    }

    assert formats == {"bf16"}


def test_a_reserve_that_settings_decide_may_shrink_and_weights_may_not():
    short = 16 * 46_080 * 575 - 400 * MIB
    changes = {c.setting: c.value for c in changes_that_fit(make_request(max_context=9_200))}
    assert changes["reserve"] == 24 * MIB - short

    fixed = make_request(max_context=9_200, reserves=(Reserve("weights", 624 * MIB),))
    assert "reserve" not in {change.setting for change in changes_that_fit(fixed)}


def test_too_many_blocks_are_told_how_many_would_fit():
    with pytest.raises(MemoryPlanError, match=r"600 blocks of 16 tokens in fp32 takes") as refused:
        plan_memory(make_request(num_blocks=600))

    settings = {change.setting: change.value for change in refused.value.changes}
    assert settings["num_blocks"] == 568
    assert "max_context" not in settings
    assert refused.value.exit_code == 2


def test_no_more_blocks_are_taken_than_can_be_of_use():
    plan = plan_memory(make_request(max_context=4096, most_blocks=300))

    assert plan.num_blocks == 300
    assert "300 blocks, as many as can be of use" in plan.lines[-1]
    assert plan_memory(make_request(max_context=4096, most_blocks=9)).num_blocks == 256


def test_activations_grow_with_the_step_and_with_the_batch():
    sizes = {"hidden": 576, "intermediate": 1536, "vocab_size": 49_152}

    assert activation_bytes(token_budget=128, max_batch=10, **sizes) == 4 * (
        128 * (6 * 576 + 3 * 1536) + 2 * 10 * 49_152
    )


def test_nothing_left_is_said_as_nothing():
    with pytest.raises(MemoryPlanError, match="nothing is left of"):
        plan_memory(make_request(reserves=(Reserve("weights", 2 * GIB),)))


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (1536, "1.50 KiB"), (5 * GIB // 2, "2.50 GiB")],
)
def test_bytes_are_said_in_the_unit_that_people_read(num_bytes, words):
    assert bytes_in_words(num_bytes) == words


@st.composite
def requests(draw):
    layers, heads, dim = draw(st.tuples(*(st.integers(1, n) for n in (80, 64, 256))))
    numbers = 2 * layers * heads * dim
    per_token = {"fp32": 4 * numbers, "bf16": 2 * numbers, "int8": numbers, "fp8": numbers}
    memory = draw(st.integers(1, 200 * GIB))
    return MemoryRequest(
        memory_bytes=memory,
        kv_format=draw(st.sampled_from(sorted(OF_SMOLLM2))),
        bytes_per_token=per_token,
        block_size=draw(st.sampled_from((1, 8, 16, 32, 64))),
        max_context=draw(st.integers(1, 200_000)),
        reserves=(
            Reserve("weights", draw(st.integers(0, memory))),
            Reserve("activations", draw(st.integers(0, memory // 2)), shrinkable=True),
        ),
        workspace_bytes_per_token=draw(st.sampled_from((0, 1024))),
        num_blocks=draw(st.none() | st.integers(1, 100_000)),
    )


def fits(request):
    try:
        plan_memory(request)
    except MemoryPlanError:
        return False
    return True


def changed(request, setting, value):
    """Return the request after one change."""
    if setting == "memory":
        return replace(request, memory_bytes=value)
    if setting == "reserve":
        weights, _ = request.reserves
        return replace(request, reserves=(weights, Reserve("activations", value, True)))
    return replace(request, **{setting: value})


@given(requests())
def test_a_plan_never_exceeds_memory_and_leaves_no_room_for_another_block(request):
    try:
        plan = plan_memory(request)
    except MemoryPlanError:
        return

    used = request.reserve_bytes + plan.num_blocks * request.block_bytes()
    assert used <= request.memory_bytes
    assert plan.num_blocks >= request.num_blocks_needed
    if request.num_blocks is None:
        assert used + request.block_bytes() > request.memory_bytes


@given(requests())
def test_each_suggested_change_fits_and_one_step_less_does_not(request):
    changes = changes_that_fit(request)

    assert bool(changes) is not fits(request)
    ratios = [change.size_ratio for change in changes]
    assert ratios == sorted(ratios)
    for change in changes:
        assert fits(changed(request, change.setting, change.value)), change
        if change.setting == "kv_format":
            now = request.bytes_per_token
            wider = [
                name
                for name in OF_SMOLLM2
                if now[change.value] < now[name] < now[request.kv_format]
            ]
            assert not any(fits(changed(request, "kv_format", name)) for name in wider)
        else:
            less = -1 if change.setting == "memory" else 1
            assert not fits(changed(request, change.setting, change.value + less)), change
