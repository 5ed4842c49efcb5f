"""The block map as a browser draws it: a palette index per block, flags, and the legend."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dashboard.theme import ACTIVE, CACHED, FREE, HOLDERS, LEAKED, SEQUENTIAL, UNKNOWN
from kvpulse.events import BlockState

if TYPE_CHECKING:
    from agent.block_map import BlockMap

Bytes = npt.NDArray[np.uint8]
UNKNOWN_OWNER = -1
NANOSECONDS = 1_000_000_000
LEGEND_ROWS = 10
OWN_CLASSES = 200
OTHERS = "others"
GROUND = frozenset({"free", "cached", "unknown"})

LIT, LEAK, OWNER_UNKNOWN = 1, 2, 4  # bits of `GridView.flags`


class ColourBy(StrEnum):
    """What a cell's colour tells."""

    STATE = "state"
    OWNER = "owner"
    TENANT = "tenant"
    COUNT = "count"
    AGE = "age"
    FILLED = "filled slots"


@dataclass(frozen=True, slots=True)
class Swatch:
    """One colour, what it means, and how many blocks have it."""

    label: str
    colour: str
    num_blocks: int
    hatched: bool = False


@dataclass(frozen=True, slots=True)
class GridView:
    """Everything the grid component needs; arrays have one entry per block."""

    classes: Bytes  # index into `swatches`
    flags: Bytes
    swatches: list[Swatch]
    legend: list[Swatch]
    num_lit: int
    leaks_are_red: bool  # the colouring says it already; no outline is needed


@dataclass(frozen=True, slots=True)
class Classes:
    """A class per block, and the swatch of each class."""

    index: Bytes
    swatches: list[Swatch]


FREE_FAINT = "#94a3b84d"
CACHED_FAINT = "#d9770680"
COUNT_STEPS = ((1, "count 1"), (2, "count 2"), (4, "count 3-4"), (8, "count 5-8"))
AGE_STEPS = (
    (1, "under 1 s"), (10, "under 10 s"), (60, "under 1 min"),
    (600, "under 10 min"), (3600, "under 1 h"),
)  # fmt: skip
# An engine states which blocks are full (they get a content hash), not how full the others are.
FILL_UNKNOWN = "no content hash yet: fill not known"
FILL_STEPS = ((0.25, "up to 1/4 full"), (0.5, "up to 1/2"), (0.75, "up to 3/4"), (0.9999, "partly"))


def grid_of(
    blocks: "BlockMap", *, colour_by: ColourBy, leaked: Sequence[int], lit: Sequence[int]
) -> GridView:
    """Return the map coloured by one property, with leaked and chosen blocks marked."""
    flags = np.zeros(len(blocks.state), np.uint8)
    flags[in_range(leaked, len(blocks.state))] |= LEAK
    flags[(blocks.state == BlockState.ACTIVE) & (blocks.owner == UNKNOWN_OWNER)] |= OWNER_UNKNOWN
    lit_ids = in_range(lit, len(blocks.state))
    flags[lit_ids] |= LIT
    classes = PAINTERS[colour_by](blocks, flags)
    counts = np.bincount(classes.index, minlength=len(classes.swatches))
    swatches = [
        Swatch(swatch.label, swatch.colour, int(number), swatch.hatched)
        for swatch, number in zip(classes.swatches, counts, strict=True)
    ]
    return GridView(
        classes=classes.index,
        flags=flags,
        swatches=swatches,
        legend=legend_of(swatches, keep_empty=colour_by is ColourBy.STATE),
        num_lit=len(lit_ids),
        leaks_are_red=colour_by is ColourBy.STATE,
    )


def in_range(ids: Sequence[int], total: int) -> npt.NDArray[np.int64]:
    """Return the distinct ids that are blocks of this map."""
    unique = np.unique(np.asarray(ids, np.int64))
    return unique[(unique >= 0) & (unique < total)]


def legend_of(swatches: Sequence[Swatch], *, keep_empty: bool) -> list[Swatch]:
    """Return the legend: the classes in use; past ten, the largest, and the rest in one line."""
    used = [swatch for swatch in swatches if swatch.num_blocks or keep_empty]
    if len(used) <= LEGEND_ROWS:
        return used
    ground = [swatch for swatch in used if swatch.label in GROUND]
    by_size = sorted(
        (swatch for swatch in used if swatch.label not in GROUND),
        key=lambda swatch: -swatch.num_blocks,
    )
    named = [swatch for swatch in by_size if swatch.label != OTHERS][: LEGEND_ROWS - len(ground)]
    blocks = sum(swatch.num_blocks for swatch in by_size) - sum(s.num_blocks for s in named)
    return [*ground, *named, Swatch(OTHERS, "transparent", blocks)]


def by_state(blocks: "BlockMap", flags: Bytes) -> Classes:
    """Colour by state; an active block is red if leaked, hatched if its owner is not known."""
    index = blocks.state.astype(np.uint8).copy()
    active = blocks.state == BlockState.ACTIVE
    index[active & (flags & OWNER_UNKNOWN > 0)] = 3
    index[flags & LEAK > 0] = 4
    index[blocks.state > BlockState.ACTIVE] = 5
    swatches = [
        Swatch("free", FREE, 0),
        Swatch("cached", CACHED, 0),
        Swatch("active", ACTIVE, 0),
        Swatch("active, owner unknown", UNKNOWN, 0, hatched=True),
        Swatch("leaked", LEAKED, 0),
    ]
    if (index == 5).any():
        swatches.append(Swatch("state unknown", UNKNOWN, 0, hatched=True))
    return Classes(index, swatches)


def base_classes(blocks: "BlockMap", unknown: str = "unknown") -> tuple[Bytes, list[Swatch]]:
    """Return the ground that the other colourings share: free and cached faint, unknown hatched."""
    index = np.full(len(blocks.state), 2, np.uint8)
    index[blocks.state == BlockState.FREE] = 0
    index[blocks.state == BlockState.CACHED] = 1
    swatches = [
        Swatch("free", FREE_FAINT, 0),
        Swatch("cached", CACHED_FAINT, 0),
        Swatch(unknown, UNKNOWN, 0, hatched=True),
    ]
    return index, swatches


def by_key(blocks: "BlockMap", keys: npt.NDArray[np.int64], names: Mapping[int, str]) -> Classes:
    """Colour active blocks by a number; its colour stays the same as others come and go."""
    index, swatches = base_classes(blocks)
    known = (blocks.state == BlockState.ACTIVE) & (keys != UNKNOWN_OWNER)
    present, sizes = np.unique(keys[known], return_counts=True)
    # A class has one byte: past the largest holders, those of one colour share a class.
    own = np.sort(present[np.argsort(-sizes, kind="stable")[:OWN_CLASSES]])
    place = np.searchsorted(own, keys)
    has_own = np.isin(keys, own)
    first = len(swatches) + len(HOLDERS)
    index[known] = np.where(has_own, first + place, len(swatches) + keys % len(HOLDERS))[known]
    swatches += [Swatch(OTHERS, colour, 0) for colour in HOLDERS]
    swatches += [
        Swatch(names.get(key, str(key)), HOLDERS[key % len(HOLDERS)], 0) for key in own.tolist()
    ]
    return Classes(index, swatches)


def by_owner(blocks: "BlockMap", flags: Bytes) -> Classes:
    """Colour by the first owner; ten colours, repeated."""
    owners = blocks.owner.astype(np.int64)
    names = {int(owner): f"sequence {owner}" for owner in np.unique(owners)}
    return by_key(blocks, owners, names)


def by_tenant(blocks: "BlockMap", flags: Bytes) -> Classes:
    """Colour by the first owner's tenant."""
    tenants = blocks.tenant.astype(np.int64)
    known = np.where(blocks.owner == UNKNOWN_OWNER, UNKNOWN_OWNER, tenants)
    return by_key(blocks, known, {0: "no tenant", **blocks.tenants})


def by_steps(
    blocks: "BlockMap",
    values: npt.NDArray[np.float64],
    steps: Sequence[tuple[float, str]],
    last: str,
    unknown: str = "unknown",
) -> Classes:
    """Colour active blocks along a scale of steps; NaN is unknown."""
    index, swatches = base_classes(blocks, unknown)
    first = len(swatches)
    active = (blocks.state == BlockState.ACTIVE) & np.isfinite(values)
    bounds = np.array([bound for bound, _ in steps])
    index[active] = first + np.searchsorted(bounds, values[active], side="left")
    labels = [*(label for _, label in steps), last]
    shades = np.linspace(0, len(SEQUENTIAL) - 1, len(labels)).round().astype(int)
    swatches += [
        Swatch(label, SEQUENTIAL[shade], 0) for label, shade in zip(labels, shades, strict=True)
    ]
    return Classes(index, swatches)


def by_count(blocks: "BlockMap", flags: Bytes) -> Classes:
    """Colour by reference count."""
    return by_steps(blocks, blocks.count.astype(np.float64), COUNT_STEPS, "count over 8")


def ages(blocks: "BlockMap") -> npt.NDArray[np.float64]:
    """Return seconds since each block last changed, NaN where that is not known."""
    since = blocks.since_ns.astype(np.float64)
    return np.where(since > 0, (blocks.at_ns - since) / NANOSECONDS, np.nan)


def by_age(blocks: "BlockMap", flags: Bytes) -> Classes:
    """Colour by the time since the block last changed."""
    return by_steps(blocks, ages(blocks), AGE_STEPS, "1 h or more")


def by_filled(blocks: "BlockMap", flags: Bytes) -> Classes:
    """Colour by the share of token slots in use."""
    filled = blocks.filled.astype(np.float64)
    share = np.where(filled >= 0, filled / max(blocks.block_size, 1), np.nan)
    return by_steps(blocks, share, FILL_STEPS, "full", FILL_UNKNOWN)


PAINTERS: dict[ColourBy, Callable[["BlockMap", Bytes], Classes]] = {
    ColourBy.STATE: by_state,
    ColourBy.OWNER: by_owner,
    ColourBy.TENANT: by_tenant,
    ColourBy.COUNT: by_count,
    ColourBy.AGE: by_age,
    ColourBy.FILLED: by_filled,
}
