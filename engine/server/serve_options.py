"""What `kvpulse serve` was told, read from its command line."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.config import PREFIX_INDEXES, EngineConfig
from engine.faults.options import add_fault_options
from engine.faults.spec import FaultSpec
from engine.option_types import duration, memory_size, port, positive, whole_number
from engine.policy.scheduling_policy import PreemptionPolicy, SchedulingPolicy
from engine.server.policy_options import add_policy, quota_names, read_policy

DEFAULT_PORT: Final = 8000
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_NUM_BLOCKS: Final = 512
AUTO_BLOCKS: Final = 0  # as many as memory holds
KV_FORMATS: Final = ("fp32", "fp16", "bf16", "int8", "fp8")  # without torch nobody can ask it
ATTENTION_NAMES: Final = ("torch", "triton", "flash_attn", "flashinfer")

_EXAMPLES: Final = """\
examples:
  kvpulse serve                          SmolLM2 on this machine's CPU, at http://127.0.0.1:8000/v1
  kvpulse serve --simulated              no model and no torch; the scheduler and pool are real
  kvpulse serve --num-blocks 96 --max-context 1024 --tenant acme --tenant 'globex-eu=globex'
  kvpulse serve --num-blocks auto --kv-format int8 --host-blocks 256 --preemption auto
  kvpulse serve --tenant-quota acme:floor=64,ceiling=256 --tier batch:step-tokens=128,watermark=0.1
"""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Settings of one server process.

    Attributes:
        model: "smollm2", "random", or a path (GGUF file, safetensors folder); "" when simulated.
        journal: Folder of the journal; None records nothing.
        num_blocks: `AUTO_BLOCKS` for as many as memory holds.
        memory_bytes: All that weights, cache and activations may take; None takes a part of what
            is free.
        kv_format: How keys and values are kept; None takes the model's own choice.
        attention: The backend's name; None takes the best that is there.
        max_samples: Most sequences of one prompt.
        port: None takes 8000, or the next free port.
        tenants: Names that clients send, and the alias recorded for each.
        faults: What is to go wrong on purpose.
        faults_truth: Where faults write what they did; None: nowhere.
    """

    model: str
    engine: str
    journal: Path | None
    key_file: Path
    num_blocks: int
    block_size: int
    host_blocks: int
    memory_bytes: int | None
    kv_format: str | None
    attention: str | None
    prefix_index: str
    preemption: PreemptionPolicy
    policy: SchedulingPolicy
    watermark_ratio: float
    max_samples: int
    max_batch: int
    max_queue: int
    max_context: int | None
    token_budget: int
    host: str
    port: int | None
    allowed_hosts: tuple[str, ...]
    tenants: dict[str, str]
    faults: tuple[FaultSpec, ...]
    faults_truth: Path | None
    accounts_file: Path | None
    drain_seconds: float
    threads: int | None
    step_ms: float
    json: bool

    @property
    def simulated(self) -> bool:
        """Whether tokens come from the cost model."""
        return not self.model

    def engine_config(self, num_blocks: int | None = None) -> EngineConfig:
        """Return the engine's own settings; raises ConfigError for impossible ones.

        Args:
            num_blocks: What memory holds, where the options say `auto`.
        """
        return EngineConfig(
            engine=self.engine,
            total_blocks=self.num_blocks or num_blocks or DEFAULT_NUM_BLOCKS,
            block_size=self.block_size,
            max_batch=self.max_batch,
            token_budget=self.token_budget,
            max_queue=self.max_queue,
            max_context=self.max_context,
            watermark_ratio=self.watermark_ratio,
            prefix_index=self.prefix_index,
            host_blocks=self.host_blocks,
            preemption=self.preemption,
            policy=self.policy,
        )


def parse_options(argv: Sequence[str], *, default_journal: Path, default_key: Path) -> ServeOptions:
    """Read the command line; argparse ends the process with 2 when it makes no sense.

    Raises:
        ConfigError: A policy that cannot be.
    """
    given = _parser().parse_args(argv)
    tenants = {name: name for name in quota_names(given)} | dict(given.tenant)
    preemption = PreemptionPolicy(
        given.preemption or ("auto" if given.host_blocks else "recompute")
    )
    return ServeOptions(
        model="" if given.simulated else given.model,
        engine=given.engine,
        journal=None if given.no_journal else given.journal or default_journal,
        key_file=given.key_file or default_key,
        num_blocks=given.num_blocks,
        block_size=given.block_size,
        host_blocks=given.host_blocks,
        memory_bytes=given.memory,
        kv_format=given.kv_format,
        attention=given.attention,
        prefix_index=given.prefix_index,
        preemption=preemption,
        policy=read_policy(given, tenants),
        watermark_ratio=given.watermark,
        max_samples=given.max_samples or given.max_batch,
        max_batch=given.max_batch,
        max_queue=given.max_queue,
        max_context=given.max_context,
        token_budget=given.token_budget or max(512, given.max_batch),
        host=given.host,
        port=given.port,
        allowed_hosts=tuple(given.allowed_host),
        tenants=tenants,
        faults=tuple(given.fault),
        faults_truth=given.faults_truth,
        accounts_file=given.accounts_file,
        drain_seconds=given.drain_seconds,
        threads=given.threads,
        step_ms=given.step_ms,
        json=given.json,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse serve",
        description="Serve a model over an OpenAI-compatible API, its KV cache recorded.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_model(parser)
    _add_memory(parser)
    _add_limits(parser)
    add_policy(parser)
    _add_listening(parser)
    _add_recording(parser)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    model = parser.add_mutually_exclusive_group()
    help_text = "smollm2 (default), random, random-mla (tiny), a GGUF file or a safetensors folder"
    model.add_argument("--model", default="smollm2", metavar="NAME|PATH", help=help_text)
    help_text = "tokens from a cost model, paced to wall time; needs no torch and no model"
    model.add_argument("--simulated", action="store_true", help=help_text)
    help_text = "simulated: what an empty step takes, in milliseconds (20)"
    parser.add_argument("--step-ms", type=duration, default=20.0, metavar="MS", help=help_text)
    parser.add_argument("--threads", type=positive, help="CPU threads for torch (its own choice)")


def _add_memory(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("KV cache")
    help_text = "blocks in the pool, or auto: as many as memory holds (512)"
    group.add_argument(
        "--num-blocks", type=_blocks, default=DEFAULT_NUM_BLOCKS, metavar="N|auto", help=help_text
    )
    help_text = "all that weights, cache and a step may take (auto: a part of what is free)"
    group.add_argument("--memory", type=memory_size, metavar="SIZE", help=help_text)
    help_text = "tokens per block (16)"
    group.add_argument("--block-size", type=positive, default=16, metavar="N", help=help_text)
    help_text = "how keys and values are kept (the model's own choice)"
    group.add_argument("--kv-format", choices=KV_FORMATS, help=help_text)
    help_text = "what computes attention (the best there is); the flash ones are experimental"
    group.add_argument("--attention", choices=ATTENTION_NAMES, help=help_text)
    help_text = "how the prefix cache finds what is kept: by block hashes, by a radix tree (hash)"
    group.add_argument("--prefix-index", choices=PREFIX_INDEXES, default="hash", help=help_text)
    help_text = "blocks in host memory, for sequences that are swapped out; 0 has none (0)"
    group.add_argument("--host-blocks", type=whole_number, default=0, metavar="N", help=help_text)
    help_text = "how a sequence gives its blocks up (auto with --host-blocks, else recompute)"
    group.add_argument("--preemption", choices=tuple(PreemptionPolicy), help=help_text)
    help_text = "part of the pool that admission leaves alone while others run (0.01)"
    group.add_argument("--watermark", type=float, default=0.01, metavar="RATIO", help=help_text)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits")
    group.add_argument("--max-batch", type=positive, default=16, help="sequences running (16)")
    group.add_argument("--max-queue", type=positive, default=64, help="sequences waiting (64)")
    group.add_argument("--max-context", type=positive, help="tokens of a sequence (the model's)")
    group.add_argument("--token-budget", type=positive, help="tokens of a step (512)")
    help_text = "samples or beams of one prompt: n, best_of, beam_width (--max-batch)"
    group.add_argument("--max-samples", type=positive, metavar="N", help=help_text)


def _add_listening(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("listening")
    group.add_argument("--host", default=DEFAULT_HOST, help="address to listen on (loopback)")
    help_text = "exactly this port, 0 for any; by default 8000 or the next free one"
    group.add_argument("--port", type=port, help=help_text)
    help_text = "answer for this Host too, besides loopback names; may be repeated"
    group.add_argument("--allowed-host", action="append", default=[], metavar="N", help=help_text)
    help_text = "record a client's name (x-kvpulse-tenant, or user) as it is, or as ALIAS"
    group.add_argument(
        "--tenant", type=_alias, action="append", default=[], metavar="NAME[=ALIAS]", help=help_text
    )
    help_text = "how long requests may run on after SIGTERM (2)"
    group.add_argument("--drain-seconds", type=duration, default=2.0, metavar="S", help=help_text)


def _add_recording(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("recording")
    group.add_argument("--engine", default="engine", help="name of the stream in the journal")
    journal = group.add_mutually_exclusive_group()
    journal.add_argument("--journal", type=Path, metavar="DIR", help="folder of the journal")
    journal.add_argument("--no-journal", action="store_true", help="record nothing")
    help_text = "key of the hashes that stand for content, ids and names (beside the store)"
    group.add_argument("--key-file", type=Path, metavar="FILE", help=help_text)
    help_text = "write the engine's own accounts here at the end, as JSON"
    group.add_argument("--accounts-file", type=Path, metavar="FILE", help=help_text)
    add_fault_options(group)
    group.add_argument("--json", action="store_true", help="say that it is ready as one JSON line")


def _alias(text: str) -> tuple[str, str]:
    name, _, alias = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError("a tenant needs a name")
    return name, alias or name


def _blocks(text: str) -> int:
    return AUTO_BLOCKS if text == "auto" else positive(text)
