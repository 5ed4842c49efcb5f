"""Every alert: one for each verdict of triage but `healthy`, and a few on what no verdict says.

The rule file and `docs/alerts.md` are generated from this table, and a test holds it against the
list of verdicts. A verdict's alert waits for nothing of its own: an incident has held for a while
before it is open (`docs/triage.md`), so `hold` only bridges a moment between two evaluations.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.metrics.incidents import INCIDENTS_OPEN
from agent.metrics.targets import TARGET_BURN_RATE
from agent.metrics.webhook import WEBHOOK_DELIVERIES


class Severity(StrEnum):
    """How soon a person has to look. The values are a label that routes alerts."""

    CRITICAL = "critical"  # wake somebody
    WARNING = "warning"  # today
    INFO = "info"  # when there is time


@dataclass(frozen=True, slots=True)
class Alert:
    """One row of the table.

    Attributes:
        name: Of the alert.
        expression: PromQL; a series that it returns is a firing alert.
        hold: How long it has to hold.
        when: What is so, in a sentence without its subject's name.
        action: What to do first.
        runbook: The section of the runbook.
        subject: The label that says what it is about.
    """

    name: str
    expression: str
    severity: Severity
    hold: str
    when: str
    action: str
    runbook: str
    subject: str = "engine"


def alert_name(verdict: str) -> str:
    """Return `KvpulsePoolLeak` for `pool_leak`."""
    return "Kvpulse" + "".join(word.capitalize() for word in verdict.split("_"))


def _verdict(verdict: str, severity: Severity, when: str, action: str) -> Alert:
    return Alert(
        name=alert_name(verdict),
        expression=f'{INCIDENTS_OPEN.name}{{verdict="{verdict}"}} == 1',
        severity=severity,
        hold={Severity.CRITICAL: "0s", Severity.WARNING: "30s", Severity.INFO: "1m"}[severity],
        when=when,
        action=action,
        runbook=verdict,
    )


OF_VERDICTS: Final = (
    _verdict(
        "engine_down",
        Severity.CRITICAL,
        "The process of the engine is gone and did not close its journal.",
        "Restart it; look for the OOM killer, container limits, the node.",
    ),
    _verdict(
        "stalled",
        Severity.CRITICAL,
        "Sequences are live, nothing is lacking, and nothing moves.",
        "Take it out of rotation, take a stack dump, restart; replicas change nothing.",
    ),
    _verdict(
        "livelock",
        Severity.CRITICAL,
        "Sequences take blocks from each other and nobody finishes.",
        "Stop admitting or restart.",
    ),
    _verdict(
        "ledger_broken",
        Severity.CRITICAL,
        "Blocks were freed twice, or the books of the pool do not add up.",
        "Do not trust reference counts; restart if answers may have been mixed up.",
    ),
    _verdict(
        "pool_leak",
        Severity.WARNING,
        "Blocks are active although their sequences have ended.",
        "Restart before the pool runs short; do not scale, it feeds the leak.",
    ),
    _verdict(
        "pool_exhausted",
        Severity.WARNING,
        "Sequences wait for blocks and there are none, or the pool lost a part of its blocks.",
        "Throttle the longest requests; where the pool shrank, find who took the memory.",
    ),
    _verdict(
        "never_fits",
        Severity.WARNING,
        "Requests need more blocks than the pool has.",
        "Cap prompt plus output at the gateway; replicas of the same size refuse them too.",
    ),
    _verdict(
        "head_of_line",
        Severity.WARNING,
        "One sequence waits for blocks, and others behind it would fit.",
        "Cancel it, or cap what one request may need.",
    ),
    _verdict(
        "batch_slots",
        Severity.WARNING,
        "Sequences wait for a place in the batch while the pool has room.",
        "Raise the limit of the batch while inter-token latency allows it.",
    ),
    _verdict(
        "token_budget",
        Severity.WARNING,
        "Prompts come faster than the token budget of the steps takes them.",
        "Raise the budget if inter-token latency has room.",
    ),
    _verdict(
        "tenant_quota",
        Severity.INFO,
        "Sequences wait since their own tenant has all it may have.",
        "Ask the tenant.",
    ),
    _verdict(
        "tenant_hog",
        Severity.WARNING,
        "One tenant holds most of what is in use, far more than before.",
        "Limit that tenant; the others need no more capacity.",
    ),
    _verdict(
        "preemption_thrash",
        Severity.WARNING,
        "Much of what is computed had been computed before.",
        "Admit fewer at once (watermark, batch).",
    ),
    _verdict(
        "compute_slow",
        Severity.WARNING,
        "Steps take longer than before for the same work.",
        "Move the load, look at the card: clocks, temperature, other processes.",
    ),
    _verdict(
        "frontend_slow",
        Severity.WARNING,
        "Requests spend long in the server before the engine has them.",
        "Give the server cores or processes.",
    ),
    _verdict(
        "traffic_shift",
        Severity.INFO,
        "More requests or longer ones than before, and they have to wait.",
        "Ask who sends it; shed or route it.",
    ),
    _verdict(
        "telemetry_incomplete",
        Severity.WARNING,
        "Events are lost, or nothing was stored for a while.",
        "Look at the disk of the journal and at /readyz of the agent.",
    ),
    _verdict(
        "unknown",
        Severity.INFO,
        "Users wait longer than they are to, or nothing is known, and no rule says why.",
        "Look at the Overview before and after.",
    ),
)

BURNING_TIMES: Final = 14.4  # a fiftieth of a month's budget in one hour: the Workbook's page

OTHERS: Final = (
    Alert(
        name="KvpulseBudgetBurning",
        expression=(
            f'{TARGET_BURN_RATE.name}{{window="1h"}} > {BURNING_TIMES} and ignoring (window) '
            f'{TARGET_BURN_RATE.name}{{window="5m"}} > {BURNING_TIMES}'
        ),
        severity=Severity.CRITICAL,
        hold="0s",
        when=(
            f"The error budget of a target is spent {BURNING_TIMES} times too fast, over the last "
            "hour and still now."
        ),
        action="Ask `kvpulse doctor` why; with no verdict, compare with a baseline.",
        runbook="unknown",
    ),
    Alert(
        name="KvpulseAgentDown",
        expression='up{job="kvpulse"} == 0',
        severity=Severity.CRITICAL,
        hold="1m",
        when="Prometheus cannot reach the agent, so no other alert here can fire.",
        action="Start it again; its journal keeps what it has not read yet, up to its size bound.",
        runbook="telemetry_incomplete",
        subject="instance",
    ),
    Alert(
        name="KvpulseWebhookLosing",
        expression=f'increase({WEBHOOK_DELIVERIES.name}{{outcome!="delivered"}}[15m]) > 0',
        severity=Severity.WARNING,
        hold="0s",
        when="The webhook was not told of an incident: refused, failed or dropped.",
        action="Look at the receiver and at the log of the agent; `kvpulse incident list` has all.",
        runbook="telemetry_incomplete",
        subject="instance",
    ),
)

ALERTS: Final = (*OF_VERDICTS, *OTHERS)
