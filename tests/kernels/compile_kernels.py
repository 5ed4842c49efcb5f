"""Compile every kernel for a GPU of a given capability, which takes none; print what came out.

Run as a process of its own, since TRITON_INTERPRET is read when triton is imported:
`python -m tests.kernels.compile_kernels 90`.
"""

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "0"

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels import block_copy, decode, prefill, split_decode, store, swap

SIZES = {
    "NUM_KV_HEADS": 8,
    "NUM_SHARED": 4,
    "HEAD_DIM": 128,
    "BLOCK_SIZE": 16,
    "TILE_M": 16,
    "TILE_N": 64,
    "TILE_D": 128,
    "UPCAST": False,
}
ROW = {"NUM_KV_HEADS": 8, "HEAD_DIM": 128, "BLOCK_SIZE": 16}


def attention(kernel, cache, **constants):
    """An attention kernel over a cache of that type, with a bf16 query."""
    has_scales = cache == "i8"
    pointers = {
        "query": "bf16",
        "key_cache": cache,
        "value_cache": cache,
        "key_scales": "fp32" if has_scales else cache,
        "value_scales": "fp32" if has_scales else cache,
        "block_tables": "i32",
        "query_starts": "i32",
        "context_lens": "i32",
        "partial": "fp32",
        "lse": "fp32",
        "out": "bf16",
    }
    return kernel, pointers, SIZES | {"HAS_SCALES": has_scales} | constants


def stored(kernel, source, cache, **constants):
    """A store kernel from one type to another."""
    pointers = {
        "key": source,
        "value": source,
        "slots": "i64",
        "key_cache": cache,
        "value_cache": cache,
        "key_scales": "fp32",
        "value_scales": "fp32",
    }
    return kernel, pointers, ROW | constants


def moved(kernel, **constants):
    """A block move over eight-byte words."""
    names = ("addresses", "sources", "targets", "block_ids", "staging")
    return kernel, dict.fromkeys(names, "i64"), {"WORD": tl.int64, "TILE_W": 1024} | constants


FP8_CAPABILITY = 89
CASES = {
    "decode bf16": attention(decode._paged_decode_kernel, "bf16"),
    "decode int8": attention(decode._paged_decode_kernel, "i8"),
    "decode fp8": attention(decode._paged_decode_kernel, "fp8e4nv"),
    "split int8": attention(split_decode._split_decode_kernel, "i8", NUM_SPLITS=8),
    "prefill bf16": attention(prefill._paged_prefill_kernel, "bf16", TILE_M=64),
    "prefill fp8": attention(prefill._paged_prefill_kernel, "fp8e4nv", TILE_M=64),
    "merge": (
        split_decode._merge_splits_kernel,
        {"partial": "fp32", "lse": "fp32", "out": "bf16"},
        {"NUM_SPLITS": 8, "HEAD_DIM": 128, "TILE_S": 8, "TILE_D": 128},
    ),
    "store bf16": stored(store._store_kv_kernel, "bf16", "bf16", TILE_ROW=1024, BOUND=0.0),
    "store fp8": stored(store._store_kv_kernel, "bf16", "fp8e4nv", TILE_ROW=1024, BOUND=448.0),
    "store int8": stored(
        store._store_codes_kernel, "bf16", "i8", TILE_H=8, TILE_D=128, LARGEST=127.0
    ),
    "copy": moved(block_copy._copy_blocks_kernel),
    "gather": moved(swap._swap_blocks_kernel, TO_STAGING=True),
    "scatter": moved(swap._swap_blocks_kernel, TO_STAGING=False),
}


def compile_one(capability, kernel, pointers, constants):
    """Compile as a launch with aligned tensors and strides of a multiple of 16 would."""
    signature, attributes = {}, {}
    for index, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            continue
        if name.endswith("_ptr"):
            signature[name] = f"*{pointers[name.removesuffix('_ptr')]}"
        else:
            signature[name] = "fp32" if name == "scale_log2" else "i32"
        if name != "window" and signature[name] != "fp32":
            attributes[(index,)] = [["tt.divisibility", 16]]
    used = {name: value for name, value in constants.items() if name in kernel.arg_names}
    source = ASTSource(kernel, signature, used, attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    return {
        "shared_bytes": compiled.metadata.shared,
        "async_copies": compiled.asm["ptx"].count("cp.async.c"),
        "binary_bytes": len(compiled.asm["cubin"]),
    }


def main():
    """Compile all that the capability allows and print one JSON object."""
    capability = int(sys.argv[1])
    print(
        json.dumps(
            {
                name: compile_one(capability, *case)
                for name, case in CASES.items()
                if capability >= FP8_CAPABILITY or not name.endswith("fp8")
            }
        )
    )


if __name__ == "__main__":
    main()
