"""Check every law of a ledger, and name what a broken one is about."""

from dataclasses import replace

from agent.ledger.core import LedgerCore
from agent.ledger.evidence import of_references
from agent.ledger.laws import (
    NAMED_BY_REFERENCES,
    Equation,
    block_laws,
    block_second_law,
    failures_of,
    reference_laws,
    sequence_laws,
)


def check_laws(core: LedgerCore, *, settled: bool) -> None:
    """Check the laws, unless a gap made the state unknown; some need settled references."""
    if not core.known:
        return
    equations = _equations(core)
    if settled:
        equations += reference_laws(core.owners, core.blocks)
        paid = float(core.owners.paid_now(core.blocks, core.t_ns).sum())
        paid += core.owners.retired_paid
        equations.append(block_second_law(paid, core.active_block_ns))
    for failure in failures_of(equations, core.t_ns):
        core.totals.laws_failed += 1
        if failure.law in NAMED_BY_REFERENCES and failure.law not in core.laws.open:
            failure = replace(failure, named=of_references(core.owners, core.blocks))
        core.fail(failure)
    if settled:
        core.laws.checked_all(core.t_ns)


def _equations(core: LedgerCore) -> list[Equation]:
    equations = block_laws(core.blocks)
    if core.shape.host_blocks:
        equations += block_laws(core.host)
        equations += core.host_holders.laws(core.host.sum_counts)
    return equations + sequence_laws(core.requests, core.t_ns, core.curve.accrued_ns)
