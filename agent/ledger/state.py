"""The ledger's whole state as bytes: an agent that was killed goes on where it had committed.

A snapshot is taken right after `OwnerLedger.rebase`: every F is 0 then, and need not be stored. The
block map of the same snapshot holds counts, states and references; this holds the rest. No pickle:
a stored state is data, and damage is a `StateError`.
"""

from dataclasses import asdict, astuple, fields
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from agent.block_map import StoredMap, decode_map, encode_map
from agent.errors import StateError
from agent.kv_groups import StatedGroups
from agent.ledger.block_ledger import BlockLedger
from agent.ledger.core import LedgerCore, Totals
from agent.ledger.delta import BrokenLaw, LawEvidence, Leak, Named, RunShape
from agent.ledger.host_holders import HostHolders
from agent.ledger.leaks import Hold, Suspect
from agent.ledger.owner_ledger import COLUMNS as OWNER_COLUMNS
from agent.ledger.owner_ledger import OwnerLedger
from agent.ledger.request_state import WAITING_STATES, RequestState, Tally
from agent.ledger.second_sums import WaitCurve
from agent.ledger.state_frame import decode_frame, encode_frame
from agent.rollups.histogram import NUM_BUCKETS, Histogram
from agent.rollups.latency import Sparse
from agent.rollups.rollup import blank_rows
from agent.rollups.scalars import ADDED_COLUMNS, COLUMN_INDEX, COLUMNS, COUNTERS, TIERS

Arrays = dict[str, npt.NDArray[Any]]

_SCALARS: Final = (
    "wall_offset_ns",
    "t_ns",
    "known",
    "continuous",
    "active_block_ns",
    "num_steps",
    "last_step",
    "last_step_ns",
    "filled_slots",
    "largest_free_run",
    "gauges",
    "config",
    "pending_lost",
)
_BLOCK_SCALARS: Final = (
    "total",
    "active",
    "cached",
    "sum_counts",
    "base_sum",
    "base_active",
    "taken",
    "dropped",
    "activations",
    "deactivations",
)
_TOTAL_SCALARS: Final = ("unknown", "gaps", "audits_passed", "audits_failed", "laws_failed")
_NOT_STORED: Final = frozenset({"sharing"})  # worked out again
_STORED: Final = tuple(f.name for f in fields(RequestState) if f.name not in _NOT_STORED)
_values_of: Final = attrgetter(*_STORED)
_HOST_ARRAYS: Final = ("count", "state", "since_ns", "hash_known", "tenant")


def encode_map_of(core: LedgerCore) -> bytes:
    """Return the block map of a settled ledger."""
    return encode_map(
        core.blocks,
        core.owners,
        t_ns=core.t_ns,
        block_size=core.shape.block_size,
        exact=core.known,
    )


def encode_state(core: LedgerCore, extra: dict[str, int]) -> bytes:
    """Return everything that the map does not hold; `core` is settled and rebased."""
    values: dict[str, Any] = {name: getattr(core, name) for name in _SCALARS}
    values["shape"] = asdict(core.shape)
    values["extra"] = extra
    values["strings"] = list(core.strings.items())
    values["blocks"] = {name: getattr(core.blocks, name) for name in _BLOCK_SCALARS}
    values["host"] = {name: getattr(core.host, name) for name in _BLOCK_SCALARS}
    values["checksums"] = [int(core.blocks.checksum), int(core.host.checksum)]
    values["totals"] = {name: getattr(core.totals, name) for name in _TOTAL_SCALARS}
    values["requests"] = [_plain(state) for state in core.requests.live.values()]
    values["tally"] = asdict(core.requests.tally)
    values["curve"] = asdict(core.curve)
    values["retired_paid"] = core.owners.retired_paid
    values["suspects"] = [[o, s.ended_ns, s.steps_then] for o, s in core.leaks.suspects.items()]
    values["open_leaks"] = [asdict(leak) for leak in core.leaks.open.values()]
    values["holds"] = [[block, asdict(hold)] for block, hold in core.leaks.holds.items()]
    values["open_laws"] = [_law_values(broken) for broken in core.laws.open.values()]
    values["laws_over"] = [_law_values(broken) for broken in core.laws.over.values()]
    values["labelled"] = _labelled_values(core)
    values["rollup_starts"] = list(core.rollups.open_start.items())
    values["columns"] = list(COLUMNS)
    values["filled_of_blocks"] = core.filled_of_blocks
    values["kv_groups"] = astuple(core.requests.kv_groups)
    values["host_holders"] = [core.host_holders.known, list(core.host_holders.held.items())]
    values["histograms"] = [[h.sum_ns, h.min_ns, h.max_ns] for h in core.latencies.totals]
    return encode_frame(values, _arrays(core))


def _plain(state: RequestState) -> dict[str, Any]:
    return dict(zip(_STORED, _values_of(state), strict=True))


def _law_values(broken: BrokenLaw) -> list[Any]:
    evidence = broken.evidence
    sides = [evidence.expected, evidence.found, list(evidence.named)]
    return [broken.law, broken.opened_ns, broken.closed_ns, sides]


def _broken_law(values: list[Any]) -> BrokenLaw:
    law, opened_ns, closed_ns, (expected, found, named) = values
    blocks, num_blocks, owners, num_owners = named
    evidence = LawEvidence(
        expected, found, Named(tuple(blocks), num_blocks, tuple(owners), num_owners)
    )
    return BrokenLaw(law, opened_ns, closed_ns, evidence)


def _labelled_values(core: LedgerCore) -> dict[str, Any]:
    labelled = core.labelled
    return {
        "totals": [[*key, value] for key, value in labelled.totals.items()],
        "open": [
            [tier, labelled.open_start[tier], [[*key, value] for key, value in sums.items()]]
            for tier, sums in labelled.open.items()
        ],
    }


def _arrays(core: LedgerCore) -> Arrays:
    owners, host = core.owners, core.host
    numbers = list(owners.slots)
    slots = np.array([owners.slots[number] for number in numbers], np.int64)
    arrays: Arrays = {
        "counters": core.totals.counters,
        "stored": core.totals.stored,
        "lost": core.totals.lost,
        "active_since": core.t_ns - core.blocks.active_since_ns[core.blocks.count > 0],
        "outlived_since": core.blocks.outlived.since_ns,
        "first_owner": core.blocks.outlived.first_owner,
        "owner": np.array(numbers, np.int64),
        **{f"owner_{name}": getattr(owners, name)[slots] for name in OWNER_COLUMNS},
        **{f"host_{name}": getattr(host, name) for name in _HOST_ARRAYS},
    }
    for tier, row in core.rollups.open_row.items():
        arrays[f"rollup_{tier}"] = row
    for tier, table in core.latencies.open.items():
        arrays.update({f"latency_{tier}_{f.name}": getattr(table, f.name) for f in fields(Sparse)})
    arrays["histograms"] = np.stack([histogram.counts for histogram in core.latencies.totals])
    return arrays


def decode_state(state_blob: bytes, map_blob: bytes) -> tuple[LedgerCore, dict[str, int]]:
    """Return the ledger that `encode_state` and its map describe, and the extra numbers.

    Raises:
        StateError: A blob is damaged or of another version.
    """
    values, arrays = decode_frame(state_blob)
    stored = decode_map(map_blob)
    try:
        core = LedgerCore(RunShape(**values["shape"]))
        core.set_wall_offset(values["wall_offset_ns"])
        for name in _SCALARS:
            setattr(core, name, values[name])
        core.filled_of_blocks = values.get("filled_of_blocks")
        core.strings = {int(i): text for i, text in values["strings"]}
        _fill_blocks(core, stored, values, arrays)
        _fill_owners(core.owners, stored, values, arrays)
        _fill_requests(core, values)
        _fill_leaks(core, values)
        for name, laws in (("open_laws", core.laws.open), ("laws_over", core.laws.over)):
            laws.update((each[0], _broken_law(each)) for each in values.get(name, ()))
        _fill_rollups(core, values, arrays)
        counters = np.zeros(len(COUNTERS), np.int64)
        counters[: len(arrays["counters"])] = arrays["counters"]  # new ones are added at the end
        core.totals = Totals(counters, arrays["stored"], arrays["lost"], **values["totals"])
        return core, values["extra"]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise StateError(f"a stored ledger state contradicts itself: {error!r}") from error


def _fill_blocks(
    core: LedgerCore, stored: StoredMap, values: dict[str, Any], arrays: Arrays
) -> None:
    blocks, host = core.blocks, core.host
    blocks.grow(len(stored.count))
    for name in ("count", "state", "since_ns", "tenant", "hash_known"):
        getattr(blocks, name)[:] = getattr(stored, name)
    blocks.active_since_ns[blocks.count > 0] = core.t_ns - arrays["active_since"]
    if "first_owner" not in arrays:  # of the first revision: holders were not kept
        core.host_holders.known = not arrays["host_count"].any()
    else:
        blocks.outlived.since_ns[:] = arrays["outlived_since"]
        blocks.outlived.first_owner[:] = arrays["first_owner"]
        known, held = values["host_holders"]
        core.host_holders = HostHolders({int(owner): n for owner, n in held}, known)
    host.grow(len(arrays["host_count"]))
    for name in _HOST_ARRAYS:
        getattr(host, name)[:] = arrays[f"host_{name}"]
    tiers: tuple[tuple[BlockLedger, str, int], ...] = (
        (blocks, "blocks", values["checksums"][0]),
        (host, "host", values["checksums"][1]),
    )
    for tier, name, checksum in tiers:
        for field in _BLOCK_SCALARS:
            setattr(tier, field, values[name][field])
        tier.checksum = np.uint64(checksum)
        tier.paid_at_ns[:] = core.t_ns


def _fill_owners(
    owners: OwnerLedger, stored: StoredMap, values: dict[str, Any], arrays: Arrays
) -> None:
    numbers = arrays["owner"].tolist()
    slots = np.array([owners.slot_of(number) for number in numbers], np.int64)
    for name in OWNER_COLUMNS:
        getattr(owners, name)[slots] = arrays[f"owner_{name}"]
    slot_of = owners.slots
    ref_slot = np.array([slot_of[number] for number in stored.ref_owner.tolist()], np.int64)
    owners.references.replace(ref_slot, stored.ref_block)
    owners.retired_paid = values["retired_paid"]


def _fill_requests(core: LedgerCore, values: dict[str, Any]) -> None:
    requests = core.requests
    requests.kv_groups = StatedGroups(*values.get("kv_groups", ()))
    for fields_of in values["requests"]:
        state = RequestState(**fields_of)
        requests.live[state.owner] = state
        requests.num_running += state.state == "running"
        requests.num_waiting += state.state in WAITING_STATES
        requests.num_swapped += state.state == "swapped"
        requests.limit_blocks += state.limit_blocks
    requests.groups.recount(requests.live.values())
    requests.blockers.recount(requests.live.values(), core.t_ns)
    requests.tally = tally = Tally(**values["tally"])
    if "requests_ended" not in values["tally"]:  # before requests were counted apart
        tally.requests_ended, tally.base_requests = tally.finished, tally.base_live
    core.curve = WaitCurve(**values["curve"])
    for number in core.owners.slots:
        if number not in requests.live:
            core.owners.retire(number)


def _fill_leaks(core: LedgerCore, values: dict[str, Any]) -> None:
    leaks = core.leaks
    leaks.suspects = {owner: Suspect(*rest) for owner, *rest in values["suspects"]}
    named = [Leak(**leak) for leak in values["open_leaks"]]
    leaks.open = {(leak.block, leak.owner): leak for leak in named}
    leaks.holds = {block: Hold(**hold) for block, hold in values["holds"]}


def _fill_rollups(core: LedgerCore, values: dict[str, Any], arrays: Arrays) -> None:
    stored = values.get("columns") or [name for name in COLUMNS if name not in ADDED_COLUMNS]
    places = [COLUMN_INDEX[name] for name in stored]
    for tier, start in values["rollup_starts"]:
        core.rollups.open_start[tier] = start
        row = core.rollups.open_row[tier] = blank_rows(1)[0]
        row[places] = arrays[f"rollup_{tier}"]
    for tier in TIERS:
        columns = (arrays[f"latency_{tier}_{f.name}"] for f in fields(Sparse))
        core.latencies.open[tier] = Sparse(*columns)
    counts = arrays["histograms"].reshape(-1, NUM_BUCKETS)
    found = zip(counts, values["histograms"], strict=True)
    totals = [Histogram(row.copy(), int(row.sum()), *stats) for row, stats in found]
    core.latencies.totals[: len(totals)] = totals  # new ones are added at the end
    labelled = core.labelled
    labelled.totals = {(family, label): v for family, label, v in values["labelled"]["totals"]}
    for tier, start, sums in values["labelled"]["open"]:
        labelled.open_start[tier] = start
        labelled.open[tier] = {(family, label): value for family, label, value in sums}
