"""What each KV format keeps of a model, on the repository's own text."""

import json
import math
from pathlib import Path

import pytest
import torch

from engine.model import kv_quality
from engine.model.kv_formats import KV_FORMATS
from engine.model.open_model import OpenedModel, open_model
from engine.model.paged_model import CacheSettings
from tests.engine.factories_model import (
    random_model,
    run_step,
    runner_of,
    sequence_of,
    smollm2,
    smollm2_tokenizer,
)

TEXT = Path(__file__).parents[2] / "docs" / "text" / "plain-english.txt"

# Of SmolLM2 over 200 tokens: least agreement, most change of perplexity either way.
BOUNDS = {"fp16": (0.995, 0.001), "bf16": (0.985, 0.003), "int8": (0.95, 0.01), "fp8": (0.9, 0.04)}


def test_the_logits_of_a_text_are_those_of_a_run_token_by_token():
    token_ids = list(range(60, 80))
    config, weights = random_model()
    model = OpenedModel(config, weights, open_model("random").text, None)

    logits = kv_quality.text_logits(model, token_ids, CacheSettings(3, 8))

    for length in (1, 2, 9, 20):
        sequence = sequence_of(token_ids[:length], blocks=[0, 1, 2], block_size=8)
        expected = run_step(runner_of(random_model(), block_size=8), [sequence])
        assert [int(logits[length - 1].argmax())] == expected


def test_perplexity_is_what_it_is_defined_to_be():
    token_ids = list(range(40, 52))
    model = open_model("random")

    (found,) = kv_quality.measure(model, token_ids, ["fp32"], [8])

    logits = kv_quality.text_logits(model, token_ids, CacheSettings(2, 8))
    chances = [logits[i].softmax(0)[token_ids[i + 1]].item() for i in range(len(token_ids) - 1)]
    expected = math.exp(-sum(map(math.log, chances)) / len(chances))
    assert found.perplexity == pytest.approx(expected, rel=1e-4)
    assert (found.agreement_ratio, found.divergence_nats) == (1.0, 0.0)
    assert found.bytes_per_token == 512


@pytest.mark.parametrize("name", ["random", "random-mla"])
def test_coarser_formats_are_further_from_the_model(name):
    token_ids = list(range(32, 122))

    found = kv_quality.measure(open_model(name), token_ids, list(KV_FORMATS), [16, 8, 64])

    divergence = {(one.kv_format, one.block_size): one.divergence_nats for one in found}
    ordered = [divergence[name, 16] for name in ("fp32", "fp16", "bf16", "int8", "fp8")]
    assert ordered == sorted(ordered)
    assert ordered[1] < 1e-4 < ordered[4]
    assert divergence["fp32", 8] < 1e-6
    assert divergence["fp32", 64] < 1e-6


def test_the_command_prints_a_table_or_json(capsys):
    arguments = [str(TEXT), "--model", "random", "--max-tokens", "40", "--block-sizes", "8"]

    assert kv_quality.main([*arguments, "--formats", "fp32", "int8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert kv_quality.main([*arguments, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)

    assert lines[2].startswith("| fp32 | 8 | 512 | 1.000 |")
    assert lines[3].startswith("| int8 | 8 | 160 | 0.312 |")
    assert lines[-1] == "40 tokens"
    assert [one["kv_format"] for one in figures] == list(KV_FORMATS)


def test_a_missing_text_or_model_ends_with_three(capsys, tmp_path):
    assert kv_quality.main([str(tmp_path / "none.txt"), "--model", "random"]) == 3
    assert kv_quality.main([str(TEXT), "--model", str(tmp_path / "none")]) == 3
    assert "none" in capsys.readouterr().err


@pytest.mark.model
@pytest.mark.slow
def test_smollm2_keeps_its_quality_in_every_format_and_all_of_it_in_every_block_size():
    token_ids = smollm2_tokenizer().encode(TEXT.read_text("utf-8"))[:200]
    model = OpenedModel(*smollm2(), smollm2_tokenizer(), None)

    with torch.inference_mode():
        found = kv_quality.measure(model, token_ids, list(KV_FORMATS), [16, 8, 64])

    exact = [one for one in found if one.kv_format == "fp32"]
    assert [(one.block_size, one.agreement_ratio) for one in exact] == [(16, 1), (8, 1), (64, 1)]
    for one in found:
        print(one)
        if one.kv_format == "fp32":
            continue
        least_agreement, most_change = BOUNDS[one.kv_format]
        assert one.agreement_ratio >= least_agreement
        assert abs(one.perplexity / exact[0].perplexity - 1) <= most_change
