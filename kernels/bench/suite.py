"""The cases of `kvpulse bench kernels`, at the sizes of Llama 3 8B, and the tiles worth trying."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final

import torch

from kernels.bench.attention_cases import decode_case, prefill_case
from kernels.bench.kernel_case import KernelCase
from kernels.bench.move_cases import copy_case, store_case, swap_case
from kernels.bench.paged_inputs import HeadSizes
from kernels.tiles import DecodeTiles, PrefillTiles, choose_splits

Builder = Callable[[], KernelCase]
LLAMA_3_8B: Final = HeadSizes()


@dataclass(frozen=True, slots=True)
class SuiteSizes:
    """How large the inputs are; the defaults pass any L2 by far."""

    heads: HeadSizes = LLAMA_3_8B
    batch: int = 64
    contexts: tuple[int, ...] = (2048, 8192)
    long_context: int = 65_536
    window: int = 4096
    chunk: int = 2048
    num_tokens: int = 8192
    num_moved: int = 256
    num_layers: int = 32

    @property
    def needed_bytes(self) -> int:
        """Device memory of the largest case, about: its cache, torch's copy, a reference."""
        token = 2 * self.heads.num_kv_heads * self.heads.head_dim * 2
        decode = 2 * self.batch * max(self.contexts) * token
        reference = 3 * self.long_context * self.heads.num_heads * self.heads.head_dim * 4
        moves = 5 * self.num_moved * self.num_layers * self.heads.block_size * token
        return max(decode + reference, moves) + (3 << 30)


def suite(
    sizes: SuiteSizes, *, device: torch.device, num_cores: int, has_fp8: bool
) -> list[Builder]:
    """Return every case, unbuilt."""
    computed = torch.bfloat16 if device.type == "cuda" else torch.float32
    decode = partial(decode_case, sizes.heads, device=device)
    longest = max(sizes.contexts)
    stored = [torch.int8, *([torch.float8_e4m3fn] if has_fp8 else [])]
    cases: list[Builder] = [
        partial(decode, batch=sizes.batch, context=context, stored=computed)
        for context in sizes.contexts
    ]
    cases += [partial(decode, batch=sizes.batch, context=longest, stored=one) for one in stored]
    cases.append(
        partial(decode, batch=sizes.batch, context=longest, stored=computed, window=sizes.window)
    )
    num_splits = choose_splits(
        num_programs=sizes.heads.num_kv_heads, max_context=sizes.long_context, num_cores=num_cores
    )
    cases += [
        partial(decode, batch=1, context=sizes.long_context, stored=computed, num_splits=splits)
        for splits in dict.fromkeys((1, num_splits))
    ]
    prefill = partial(prefill_case, sizes.heads, device=device, chunk=sizes.chunk)
    cases += [
        partial(prefill, context=longest, stored=computed),
        partial(prefill, context=sizes.chunk, stored=computed),
        partial(prefill, context=longest, stored=torch.int8),
    ]
    return cases + _moves(sizes, device, [computed, *stored])


def _moves(sizes: SuiteSizes, device: torch.device, stored: list[torch.dtype]) -> list[Builder]:
    swap = partial(
        swap_case,
        sizes.heads,
        num_moved=sizes.num_moved,
        num_layers=sizes.num_layers,
        device=device,
    )
    return [
        *(
            partial(store_case, sizes.heads, num_tokens=sizes.num_tokens, stored=one, device=device)
            for one in stored
        ),
        partial(
            copy_case,
            sizes.heads,
            num_pairs=sizes.num_moved,
            num_layers=sizes.num_layers,
            device=device,
        ),
        partial(swap, to_staging=True),
        partial(swap, to_staging=False),
    ]


def sweep(sizes: SuiteSizes, *, device: torch.device) -> Iterator[tuple[str, Builder]]:
    """Give the alternatives to the tiles that `kernels.tiles` chooses, each with its name.

    A key is found through its table entry, so Triton needs two stages for each round of keys that
    it reads ahead: 3 and 5 are one round and two.
    """
    for tokens, warps, stages in product((32, 64, 128), (2, 4, 8), (3, 5)):
        yield (
            f"decode tokens={tokens} warps={warps} stages={stages}",
            partial(
                decode_case,
                sizes.heads,
                batch=sizes.batch,
                context=max(sizes.contexts),
                stored=torch.bfloat16,
                device=device,
                tiles=DecodeTiles(tokens, warps, stages),
            ),
        )
    for rows, tokens, warps, stages in product((64, 128), (32, 64, 128), (4, 8), (2, 3)):
        yield (
            f"prefill rows={rows} tokens={tokens} warps={warps} stages={stages}",
            partial(
                prefill_case,
                sizes.heads,
                chunk=sizes.chunk,
                context=max(sizes.contexts),
                stored=torch.bfloat16,
                device=device,
                tiles=PrefillTiles(rows, tokens, warps, stages),
            ),
        )
