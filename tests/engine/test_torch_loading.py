"""A model is loaded with a cache that fits beside it, and says how large it is and why."""

from dataclasses import replace

import pytest
import torch

from engine.memory_plan import MemoryPlanError, plan_memory
from engine.model.attention.protocol import AttentionUnavailableError
from engine.model.open_model import open_model
from engine.option_types import memory_size
from engine.server.loaded_model import load_model
from engine.server.torch_loading import (
    CPU_SHARE,
    Device,
    free_bytes,
    load_torch,
    memory_request,
    weight_bytes,
)
from tests.engine.factories_hf import toy_config, toy_tensors, toy_tokenizer, write_folder
from tests.engine.factories_server import serve_options

MIB = 2**20
GIB = 2**30


def make_options(folder, *arguments):
    return serve_options(folder, "--model", "random", "--max-batch", "2", *arguments)


def request_of(options, *, free=GIB, device=None):
    model = open_model("random")
    return memory_request(options, model, device or Device.of(model), free)


def test_what_is_planned_is_what_is_allocated(tmp_path):
    options = make_options(tmp_path, "--num-blocks", "auto", "--memory", "8MiB")

    loaded = load_torch(options)

    assert loaded.runner.kv.num_bytes == loaded.plan.cache_bytes
    assert loaded.plan.num_blocks > 128, "one whole context at least"
    used = weight_bytes(loaded.model.weights) + loaded.plan.cache_bytes
    assert used < 8 * MIB


@pytest.mark.parametrize("kv_format", ["fp32", "fp16", "bf16", "int8"])
def test_the_format_that_is_asked_for_is_planned_and_allocated(tmp_path, kv_format):
    options = make_options(tmp_path, "--num-blocks", "64", "--kv-format", kv_format)

    loaded = load_torch(options)

    assert loaded.plan.num_blocks == 64
    assert loaded.runner.describe().kv_format == kv_format
    assert loaded.runner.kv.num_bytes == loaded.plan.cache_bytes
    assert any(line.startswith(f"a token in {kv_format}: ") for line in loaded.plan.lines)


def test_host_blocks_are_allocated_and_on_a_cpu_they_need_their_memory(tmp_path):
    without = make_options(tmp_path, "--num-blocks", "64")
    options = replace(without, host_blocks=32)

    assert load_torch(options).runner.kv.num_host_bytes == 32 * 16 * 512
    more = request_of(options).reserve_bytes - request_of(without).reserve_bytes
    assert more == 32 * 16 * 512
    assert request_of(options, device=Device("cuda", torch.float32)).reserve_bytes == (
        request_of(without).reserve_bytes
    )


def test_an_attention_that_cannot_run_here_is_refused_with_what_could(tmp_path):
    options = make_options(tmp_path, "--num-blocks", "64", "--attention", "flash_attn")

    with pytest.raises(AttentionUnavailableError, match="use --attention torch"):
        load_torch(options)
    assert load_torch(replace(options, attention="torch")).plan.num_blocks == 64


def test_a_latent_cache_is_planned_by_its_own_formula(tmp_path):
    options = replace(make_options(tmp_path, "--num-blocks", "64"), model="random-mla")

    loaded = load_torch(options)

    assert loaded.runner.kv.num_bytes == loaded.plan.cache_bytes == 64 * 16 * 2 * (32 + 8) * 4


def test_a_safetensors_folder_is_loaded_by_its_path_and_named_after_it(tmp_path):
    config = toy_config()
    folder = write_folder(
        tmp_path / "toy-1.5b", config, toy_tensors(config), tokenizer=toy_tokenizer()
    )
    options = replace(make_options(tmp_path, "--num-blocks", "auto"), model=f"{folder}/")

    model = load_model(options, wall_ns=lambda: 0)

    assert model.names[0] == "toy-1.5b"
    assert model.text.encode("a")
    assert model.runner.describe().vocab_size == config["vocab_size"]
    assert model.num_blocks >= 1


def test_auto_takes_a_part_of_what_is_free_and_no_more_than_can_be_of_use(tmp_path):
    options = make_options(tmp_path, "--num-blocks", "auto")

    small = request_of(options, free=16 * MIB)
    assert small.memory_bytes == CPU_SHARE * 16 * MIB + weight_bytes(open_model("random").weights)
    assert plan_memory(small).num_blocks == small.num_blocks_that_fit()
    large = plan_memory(request_of(options, free=64 * GIB))
    assert large.num_blocks == 4 * 2 * 128, "four times two sequences of a whole context"


def test_what_does_not_fit_names_what_would(tmp_path):
    options = make_options(tmp_path, "--num-blocks", "auto", "--memory", "2MiB")

    with pytest.raises(MemoryPlanError) as refused:
        load_model(options, wall_ns=lambda: 0)

    changes = {change.setting: change.value for change in refused.value.changes}
    assert changes["memory"] > 2 * MIB
    assert "--memory" in str(refused.value)
    load_torch(replace(options, memory_bytes=changes["memory"]))
    with pytest.raises(MemoryPlanError):
        load_torch(replace(options, memory_bytes=changes["memory"] - 1))


def test_more_memory_than_there_is_is_not_promised(tmp_path):
    options = make_options(tmp_path, "--num-blocks", "auto", "--memory", "1TiB")

    assert request_of(options, free=GIB).memory_bytes < 2 * GIB


def test_the_served_model_has_the_names_and_the_blocks_that_were_planned(tmp_path):
    options = make_options(tmp_path, "--num-blocks", "auto", "--memory", "8MiB")

    model = load_model(options, wall_ns=lambda: 0)

    assert model.names[0] == "random"
    assert options.engine_config(model.num_blocks).total_blocks == model.num_blocks > 128
    assert model.memory_lines[0].startswith("--memory, of ")
    assert free_bytes(Device("cpu", torch.float32)) > 0


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("1", 1), ("512MiB", 512 * MIB), ("1.5GiB", 3 * GIB // 2), ("500000000", 500_000_000)],
)
def test_an_amount_of_memory_is_read_with_its_unit(text, num_bytes):
    assert memory_size(text) == num_bytes


@pytest.mark.parametrize("text", ["", "0", "-1GiB", "8GB", "much", "nanGiB", "infGiB", "GiB"])
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(Exception, match="no amount of memory"):
        memory_size(text)
