"""Tables of requests, gaps and kinds: filters, units, and empty cells where nobody measured."""

from dataclasses import replace

from agent.reads.broken_laws import BrokenLaw
from agent.reads.models import KindTotal, RequestState, RunState
from dashboard.frames.requests import chosen, fact_lines, oldest_wait_seconds, table_of
from dashboard.frames.status import Tone
from dashboard.frames.telemetry import (
    gaps_table,
    headline,
    health_tiles,
    kinds_table,
    laws_table,
)
from kvpulse.events import UNKNOWN_OWNER
from tests.dashboard.factories_rows import engine_row, request_row
from tests.dashboard.fake_reads import FakeReads

SECOND = 1_000_000_000
NOW = 1_796_000_000 * SECOND
ROWS = [request_row(owner, NOW) for owner in range(100, 130)]


def test_a_value_that_nobody_measured_is_an_empty_cell_and_not_a_zero():
    waiting = request_row(100, NOW, (RequestState.WAITING,))

    table = table_of([waiting])

    assert table["TTFT"] == table["Logical"] == table["Shared"] == [None]
    assert table["Pool wait"] == [0.0]


def test_a_refusal_tells_its_reason_as_the_end():
    rejected = request_row(100, NOW, (RequestState.REJECTED,))

    assert table_of([rejected])["End"] == ["rejected: queue full"]


def test_a_preempted_request_names_for_whom():
    assert table_of([request_row(105, NOW)])["Preempted for"] == ["108"]


def test_waits_that_no_request_had_take_no_column():
    assert "Quota wait" not in table_of(ROWS)
    assert "Quota wait" in table_of([replace(ROWS[0], wait_quota_ns=5)])


def test_filters_of_state_and_tenant_are_both_required():
    rows = chosen(ROWS, states=["running"], tenants=["chat"], only="all")

    assert rows
    assert {(row.state, row.tenant) for row in rows} == {(RequestState.RUNNING, "chat")}


def test_no_chosen_state_filters_nothing():
    assert chosen(ROWS, states=[], tenants=[], only="all") == ROWS


def test_the_oldest_wait_is_that_of_the_earliest_arrival():
    rows = [replace(ROWS[0], arrived_at_ns=NOW - n * SECOND) for n in (3, 9, 5)]

    assert oldest_wait_seconds(rows, NOW) == 9
    assert oldest_wait_seconds([], NOW) is None


def test_facts_name_each_cause_and_how_long():
    facts = dict(fact_lines(ROWS[1]))

    assert facts["Waited for"] == "pool 300 ms, engine busy 4.0 ms"


def test_the_wait_after_a_preemption_is_told_apart():
    row = replace(ROWS[1], wait_after_preempt_ns=5_600_000_000)

    assert dict(fact_lines(row))["Waited again after preemption"] == "5.60 s"
    assert table_of([row])["Re-wait"] == [5.6]


def test_a_clamped_limit_tells_what_was_asked_for():
    clamped = replace(ROWS[1], asked_max_tokens=9000)

    assert dict(fact_lines(clamped))["Prompt / output / limit"].endswith(
        "256 (asked for 9000) tokens"
    )


def test_lost_kinds_come_first_and_their_share_is_exact():
    table = kinds_table({"step": KindTotal(90, 0), "free": KindTotal(75, 25)})

    assert table["Kind"] == ["free", "step"]
    assert table["Share stored"] == [0.75, 1.0]


def test_a_gap_tells_its_length_its_reason_and_what_it_took():
    table = gaps_table(FakeReads(now_ns=NOW, with_gap=True).gaps(1))

    assert table["Length"] == ["1 min 00 s"]
    assert table["Events lost"] == [412]
    assert table["Most of"] == ["allocate"]


def test_telemetry_is_called_good_only_when_all_arrived_and_audits_passed():
    reads = FakeReads(now_ns=NOW)
    engine, health = engine_row(NOW), reads.telemetry(1)

    def tone(**changes):
        return headline(engine, replace(health, **changes), stale=False).tone

    assert tone() is Tone.GOOD
    assert tone(lost=1) is Tone.NOTICE
    assert tone(audits_failed=1) is Tone.BAD
    assert tone(audits_passed=0) is Tone.NOTICE
    assert headline(engine, health, stale=True).tone is Tone.UNKNOWN
    dead = replace(engine, state=RunState.DEAD)
    assert headline(dead, health, stale=False).tone is Tone.BAD


def test_health_tiles_without_an_agent_say_why_they_are_empty():
    reads = FakeReads(now_ns=NOW, measured=False)
    health = replace(reads.telemetry(1), audits_passed=0, behind_records=None)

    tiles = {tile.name: tile for tile in health_tiles(engine_row(NOW), health, None)}

    assert tiles["Events stored"].value is None
    assert tiles["Behind"].value is None
    assert tiles["Audits"].value is None
    assert tiles["Position"].note == "no journal read yet"


def test_broken_laws_name_what_they_are_about_and_whether_they_hold_again():
    audit = BrokenLaw("audit", NOW, None, "active 4", "active 3", [7], 1, [3, UNKNOWN_OWNER], 9)
    over = replace(audit, closed_at_ns=NOW + SECOND, blocks=[], num_blocks=0)

    table = laws_table([audit, over])

    assert table["Blocks"] == ["7", None]
    assert table["Sequences"] == ["3, unknown and 7 more"] * 2
    assert (table["Held again"][0], table["Found"][0]) == (None, "active 3")
    assert table["Held again"][1] is not None


def test_a_broken_law_is_the_headline_also_where_every_audit_passed():
    health = replace(FakeReads().telemetry(1), lost=0, last_audit_failure="waits_add_up: 1, not 2")

    assert health.audits_failed == 0
    assert headline(engine_row(NOW), health, stale=False).tone is Tone.BAD
