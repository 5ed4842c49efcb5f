"""How much of a model's quality each KV format keeps: perplexity and agreement on a text.

    python -m engine.model.kv_quality docs/text/plain-english.txt

The text runs token by token known (teacher forcing), the first token alone and then in chunks, so
that every key and value that is attended to has been through the cache. The first format is the
one that the others are held against.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from engine.block_table import blocks_for
from engine.errors import EngineError
from engine.model.group_batches import pack_groups
from engine.model.kv_formats import KV_FORMATS
from engine.model.open_model import BUILT_IN, OpenedModel, open_model
from engine.model.paged_model import CacheSettings, build_model
from engine.request import Request
from engine.sequence import Sequence as EngineSequence

CHUNK_TOKENS = 128
BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Quality:
    """What one format keeps.

    Attributes:
        bytes_per_token: Over all layers, scales included.
        perplexity: exp of the mean negative log-likelihood of each next token of the text.
        agreement_ratio: Share of positions whose best next token is that of the first format.
        divergence_nats: Mean Kullback-Leibler divergence of the next token's distribution from
            that of the first format.
    """

    kv_format: str
    block_size: int
    bytes_per_token: int
    perplexity: float
    agreement_ratio: float
    divergence_nats: float


def text_logits(model: OpenedModel, token_ids: Sequence[int], settings: CacheSettings) -> Tensor:
    """Return the logits after each token of a text, [len(token_ids), vocab_size] fp32."""
    built = build_model(model.config, model.weights, settings)
    sequence = EngineSequence(1, Request(tuple(token_ids)), block_size=settings.block_size)
    sequence.block_table.block_ids = list(range(settings.num_blocks))
    logits: list[Tensor] = []
    while sequence.num_computed_tokens < len(token_ids):
        done = sequence.num_computed_tokens
        num_new = min(CHUNK_TOKENS, len(token_ids) - done) if done else 1
        batch = pack_groups(
            [sequence],
            [num_new],
            groups=model.config.kv_groups,
            block_size=settings.block_size,
            device=built.device,
        )
        every_row = torch.arange(num_new, device=built.device)
        logits.append(built.model.forward(dataclasses.replace(batch, sampled_rows=every_row)))
        sequence.num_computed_tokens += num_new
    return torch.cat(logits)


def measure(
    model: OpenedModel, token_ids: Sequence[int], formats: Sequence[str], block_sizes: Sequence[int]
) -> list[Quality]:
    """Measure each format at the first block size, then the first format at the others.

    Raises:
        KvFormatError: No format of one of the names here.
    """
    runs = [(name, block_sizes[0]) for name in formats]
    runs += [(formats[0], block_size) for block_size in block_sizes[1:]]
    found: list[Quality] = []
    exact: Tensor | None = None
    for name, block_size in runs:
        num_blocks = len(model.config.kv_groups) * blocks_for(len(token_ids), block_size)
        logits = text_logits(model, token_ids, CacheSettings(num_blocks, block_size, name))
        exact = logits if exact is None else exact
        found.append(_judge(model, token_ids, logits, exact, name, block_size))
    return found


def _judge(
    model: OpenedModel,
    token_ids: Sequence[int],
    logits: Tensor,
    exact: Tensor,
    name: str,
    block_size: int,
) -> Quality:
    targets = torch.tensor(token_ids[1:], device=logits.device)
    loss = functional.cross_entropy(logits[:-1], targets)
    divergence = functional.kl_div(
        logits.log_softmax(-1), exact.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    same = logits.argmax(-1) == exact.argmax(-1)
    return Quality(
        kv_format=name,
        block_size=block_size,
        bytes_per_token=model.bytes_per_token(name),
        perplexity=float(loss.exp()),
        agreement_ratio=float(same.float().mean()),
        divergence_nats=max(0.0, float(divergence)),
    )


def table(found: Sequence[Quality], num_tokens: int) -> str:
    """Lay the results out as a Markdown table."""
    first = found[0]
    lines = [
        "| format | block | bytes/token | ratio | perplexity | change | same token | KL, nats |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {one.kv_format} | {one.block_size} | {one.bytes_per_token:,} "
        f"| {one.bytes_per_token / first.bytes_per_token:.3f} | {one.perplexity:.4f} "
        f"| {one.perplexity / first.perplexity - 1:+.3%} | {one.agreement_ratio:.2%} "
        f"| {one.divergence_nats:.1e} |"
        for one in found
    ]
    return "\n".join([*lines, "", f"{num_tokens} tokens"])


def main(argv: list[str]) -> int:
    """Run `python -m engine.model.kv_quality TEXT [--model NAME] [--formats …] [--json]`."""
    parser = argparse.ArgumentParser(prog="python -m engine.model.kv_quality", description=__doc__)
    parser.add_argument("text", type=Path, help="a UTF-8 text")
    parser.add_argument(
        "--model", default="smollm2", help=f"a name, path or one of {', '.join(BUILT_IN)}"
    )
    parser.add_argument("--formats", nargs="+", choices=list(KV_FORMATS), default=list(KV_FORMATS))
    parser.add_argument("--block-sizes", nargs="+", type=int, default=[BLOCK_SIZE, 8, 32, 64])
    parser.add_argument("--max-tokens", type=int, default=None, metavar="N")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args(argv)
    try:
        text = given.text.read_text("utf-8")
        model = open_model(given.model)
        token_ids = model.text.encode(text)[: given.max_tokens]
        found = measure(model, token_ids, given.formats, given.block_sizes)
    except (EngineError, OSError, UnicodeDecodeError) as error:
        print(f"kv_quality: {error}", file=sys.stderr)
        return 3
    if given.json:
        print(json.dumps([dataclasses.asdict(one) for one in found]))
    else:
        print(table(found, len(token_ids)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
