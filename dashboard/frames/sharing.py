"""What sharing saved and what it cost, in tiles and in a sentence."""

from dataclasses import dataclass

import numpy as np

from agent.kv_groups import StatedGroups
from agent.reads.models import EngineRow, Series
from dashboard.formats import NANOSECONDS, count, num_bytes, ratio
from dashboard.frames.series import total_of
from dashboard.frames.status import Status, Tone
from dashboard.frames.strip import Tile

SHARING_METRICS = (
    "prefix_hit_tokens", "prefix_queried_tokens", "resume_hit_tokens", "tokens_lost",
    "logical_blocks", "active_blocks", "copied", "forked", "outlived_block_ns", "active_block_ns",
    "swapped_out", "swapped_in", "preempted",
)  # fmt: skip
TOKENS = ("prefill_tokens", "prefix_hit_tokens", "resume_hit_tokens")
MOVES = ("copied", "swapped_out", "swapped_in")


@dataclass(frozen=True, slots=True)
class Sharing:
    """A window's figures; None where nobody measured."""

    hit_tokens: float | None  # of fresh prompts
    queried_tokens: float | None
    found_tokens: float | None  # by preempted sequences that went on
    lost_tokens: float | None
    mean_saved_blocks: float | None
    peak_saved_blocks: float | None
    copied_blocks: float | None
    forks: float | None
    outlived_ratio: float | None  # of all active block-seconds
    outlived_block_seconds: float | None
    swapped_out: float | None
    swapped_in: float | None
    preempted: float | None
    bytes_per_block: float | None

    @property
    def hit_ratio(self) -> float | None:
        """Return which share of the tokens looked up by fresh prompts was found."""
        if not self.queried_tokens or self.hit_tokens is None:
            return None
        return self.hit_tokens / self.queried_tokens

    def size(self, blocks: float | None) -> str | None:
        """Write some blocks as bytes, or as blocks where bytes are not stated."""
        if blocks is None:
            return None
        if self.bytes_per_block is None:
            return f"{count(blocks)} blocks"
        return num_bytes(blocks * self.bytes_per_block)


def sharing_of(engine: EngineRow, series: Series) -> Sharing:
    """Return a window's figures."""
    bytes_per_block = StatedGroups.read(engine.fingerprint).bytes_per_block(
        engine.fingerprint.get("bytes_per_token"), engine.block_size
    )
    saved = series.values["logical_blocks"] - series.values["active_blocks"]
    saved = saved[np.isfinite(saved)]
    totals = {name: total_of(series, name) for name in SHARING_METRICS}
    outlived, active = totals["outlived_block_ns"], totals["active_block_ns"]
    return Sharing(
        hit_tokens=totals["prefix_hit_tokens"],
        queried_tokens=totals["prefix_queried_tokens"],
        found_tokens=totals["resume_hit_tokens"],
        lost_tokens=totals["tokens_lost"],
        mean_saved_blocks=float(saved.mean()) if len(saved) else None,
        peak_saved_blocks=float(saved.max()) if len(saved) else None,
        copied_blocks=totals["copied"],
        forks=totals["forked"],
        outlived_ratio=None if outlived is None or not active else outlived / active,
        outlived_block_seconds=None if outlived is None else outlived / NANOSECONDS,
        swapped_out=totals["swapped_out"],
        swapped_in=totals["swapped_in"],
        preempted=totals["preempted"],
        bytes_per_block=bytes_per_block,
    )


def headline(facts: Sharing) -> Status:
    """Return in a sentence what sharing came to in the window."""
    if facts.mean_saved_blocks is None:
        hint = "choose a longer one, or check Telemetry health"
        return Status("Nothing measured in this window", (hint,), Tone.UNKNOWN)
    saves = bool(facts.hit_tokens or facts.peak_saved_blocks)
    costs = cost_words(facts)
    if not saves:
        first = "Nothing was shared in this window"
        return Status(first, costs or ("every prompt was computed and stored in full",), Tone.GOOD)
    parts = []
    if facts.hit_tokens:
        parts.append(
            f"{count(facts.hit_tokens)} prompt tokens ({ratio(facts.hit_ratio)}) were not computed"
        )
    if facts.peak_saved_blocks:
        parts.append(f"{facts.size(facts.mean_saved_blocks)} on average were not stored")
    paid = costs or ("it cost no copy",)
    return Status(f"Sharing pays: {', '.join(parts)}", paid, Tone.GOOD)


def cost_words(facts: Sharing) -> tuple[str, ...]:
    """Return what sharing cost, in words; nothing where it cost nothing."""
    words = []
    if facts.copied_blocks:
        words.append(
            f"{count(facts.copied_blocks)} blocks were copied on a write"
            f" ({facts.size(facts.copied_blocks)} moved)"
        )
    if facts.outlived_ratio:
        words.append(
            f"{ratio(facts.outlived_ratio)} of all block-seconds were blocks that their first"
            " holder had let go of"
        )
    return tuple(words)


def sharing_tiles(facts: Sharing) -> list[Tile]:
    """Return the tiles; fresh prompts and preempted ones are never put into one number."""
    return [
        hit_tile(facts),
        found_tile(facts),
        saved_tile(facts),
        copies_tile(facts),
        outlived_tile(facts),
        swap_tile(facts),
    ]


def hit_tile(facts: Sharing) -> Tile:
    """Return the hit rate of fresh prompts."""
    if facts.hit_ratio is None:
        return Tile("Fresh hit rate", None, "no new prompt was looked up in this window")
    note = f"{count(facts.hit_tokens)} of {count(facts.queried_tokens)} tokens not computed"
    return Tile("Fresh hit rate", ratio(facts.hit_ratio), note)


def found_tile(facts: Sharing) -> Tile:
    """Return what preempted sequences found again."""
    name = "Found again on resume"
    if facts.found_tokens is None:
        return Tile(name, None, "nothing measured in this window")
    if not facts.lost_tokens and not facts.found_tokens:
        return Tile(name, "0 tokens", "no preemption took tokens")
    return Tile(
        name,
        f"{count(facts.found_tokens)} tokens",
        f"{count(facts.lost_tokens)} lost by preemptions",
    )


def saved_tile(facts: Sharing) -> Tile:
    """Return what was not stored because one block served several."""
    if facts.mean_saved_blocks is None:
        return Tile("Not stored", None, "no pool samples in this window")
    peak = f"at most {facts.size(facts.peak_saved_blocks)}"
    note = f"on average; {peak} · {count(facts.peak_saved_blocks)} blocks"
    return Tile("Not stored", facts.size(facts.mean_saved_blocks), note)


def copies_tile(facts: Sharing) -> Tile:
    """Return copies on write, their bytes and the forks they come from."""
    if facts.copied_blocks is None:
        return Tile("Copies on write", None, "nothing measured in this window")
    forks = f"{count(facts.forks)} forks"
    size = facts.size(facts.copied_blocks)
    note = f"{size} · {forks}" if facts.bytes_per_block else f"{forks}; bytes per token not stated"
    return Tile("Copies on write", f"{count(facts.copied_blocks)} blocks", note)


def outlived_tile(facts: Sharing) -> Tile:
    """Return what sharing kept active."""
    name = "Kept active by sharing"
    if facts.outlived_block_seconds is None:
        return Tile(name, None, "nothing measured in this window")
    share = ratio(facts.outlived_ratio) if facts.outlived_ratio is not None else "none"
    note = f"block-seconds after the first holder · {share} of all"
    return Tile(name, count(facts.outlived_block_seconds), note)


def swap_tile(facts: Sharing) -> Tile:
    """Return the blocks swapped out and in."""
    if facts.swapped_out is None:
        return Tile("Swapped out / in", None, "nothing measured in this window")
    moved = (facts.swapped_out or 0) + (facts.swapped_in or 0)
    note = f"{facts.size(moved)} moved · {count(facts.preempted)} preemptions"
    return Tile("Swapped out / in", f"{count(facts.swapped_out)} / {count(facts.swapped_in)}", note)
