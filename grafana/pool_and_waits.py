"""The board "kvpulse: pool and waits": is it the pool, the scheduler, or the telemetry itself?"""

from typing import Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models

from agent.metrics import incidents
from agent.metrics import table as metrics
from grafana import (
    capacity_panels,
    gpu_panels,
    now_panels,
    pool_panels,
    queries,
    sharing_panels,
    target_panels,
    telemetry_panels,
    verdict_panels,
    wait_panels,
)
from grafana.panel_defaults import DATASOURCE, query

UID: Final = "kvpulse-pool-and-waits"
DASHBOARD_URL: Final = "http://127.0.0.1:8501"


def pool_and_waits() -> models.Dashboard:
    """Build the board."""
    board = (
        dashboard.Dashboard("kvpulse: pool and waits")
        .uid(UID)
        .description("The paged KV cache of one or more engines: pool, waits, refusals, latency.")
        .tags(["kvpulse", "kv-cache"])
        .time("now-15m", "now")
        .refresh("10s")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(_blocks_link())
    )
    for variable in (_datasource_variable(), _engine_variable(), _dashboard_url_variable()):
        board = board.with_variable(variable)
    built = _with_panels(board).build()
    for link in built.links or []:
        link.placement = None  # type: ignore[assignment]  # the SDK's default hides it in a menu
    built.annotations = models.AnnotationContainer(list_val=[_restarts(), _losses(), _incidents()])
    return built


def _with_panels(board: dashboard.Dashboard) -> dashboard.Dashboard:
    rows = {
        "Verdict and incidents": (
            verdict_panels.verdict_stat(),
            verdict_panels.open_incidents_stat(),
            target_panels.fastest_burn_stat(),
            verdict_panels.verdict_timeline(),
            verdict_panels.incident_timeline(),
        ),
        "Now": (
            now_panels.sources_stat(),
            now_panels.active_blocks_stat(),
            now_panels.cached_blocks_stat(),
            now_panels.free_blocks_stat(),
            now_panels.usage_stat(),
            now_panels.oldest_wait_stat(),
            now_panels.rejected_stat(),
            now_panels.leaked_stat(),
        ),
        "Targets": (target_panels.share_within_target(), target_panels.burn_rates()),
        "Pool": (
            pool_panels.pool_by_state(),
            pool_panels.logical_and_active_blocks(),
            capacity_panels.time_to_exhaustion(),
            capacity_panels.allocation_time(),
        ),
        "Waits": (
            wait_panels.waits_by_class(),
            wait_panels.waits_by_cause(),
            wait_panels.waiting_by_cause(),
            wait_panels.oldest_wait_by_cause(),
        ),
        "Refused": (wait_panels.rejections_by_reason(), pool_panels.allocation_failures()),
        "Latency": (
            wait_panels.first_token_quantiles(),
            wait_panels.inter_token_quantiles(),
            wait_panels.pool_and_scheduler_wait(),
        ),
        "Reuse and repeated work": (
            pool_panels.preemptions(),
            pool_panels.recomputed_tokens(),
            pool_panels.prefix_hit_ratio(),
        ),
        "Sharing and giving way": (
            sharing_panels.copies_and_swaps(),
            sharing_panels.lost_and_found_tokens(),
            sharing_panels.head_of_line(),
        ),
        "GPUs of the machines": (
            gpu_panels.gpu_memory(),
            gpu_panels.gpu_utilization(),
            gpu_panels.gpu_power(),
        ),
        "Telemetry health": (
            telemetry_panels.stored_and_lost_events(),
            telemetry_panels.audits(),
            telemetry_panels.journal_lag(),
        ),
    }
    for title, panels in rows.items():
        board = board.with_row(dashboard.Row(title))
        for panel in panels:
            board = board.with_panel(panel)
    return board


def _datasource_variable() -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _engine_variable() -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable("engine")
        .label("Engine")
        .datasource(DATASOURCE)
        .query(f"label_values({metrics.SOURCE_UP.name}, engine)")
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(models.VariableOption(text="All", value="$__all", selected=True))
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


def _dashboard_url_variable() -> dashboard.ConstantVariable:
    return dashboard.ConstantVariable("dashboard_url").value(DASHBOARD_URL)


def _blocks_link() -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink("Block map and requests")
        .type(models.DashboardLinkType.LINK)
        .icon("external link")
        .tooltip("The same engine block by block, in kvpulse's own dashboard")
        .url("${dashboard_url}")
        .target_blank(True)
    )


def _restarts() -> models.AnnotationQuery:
    changed = f"changes({queries.select(metrics.RUN_START)}[{queries.RATE_WINDOW}]) > 0"
    return _mark("Engine restarted", changed, "#7c3aed")


def _losses() -> models.AnnotationQuery:
    lost = queries.per_second(metrics.EVENTS_LOST, "engine")
    return _mark("Events lost", f"{lost} > 0", "#dc2626")


def _incidents() -> models.AnnotationQuery:
    opened = queries.per_second(incidents.INCIDENTS, "engine, verdict")
    return _mark("Incident opened", f"{opened} > 0", "#ea580c", text="{{engine}}: {{verdict}}")


def _mark(name: str, expr: str, colour: str, text: str = "{{engine}}") -> models.AnnotationQuery:
    mark = models.AnnotationQuery(
        name=name,
        datasource=DATASOURCE,
        enable=True,
        icon_color=colour,
        target=query(expr, text, "Anno").build(),
        title_format=name,
        text_format=text,
    )
    mark.placement = None  # type: ignore[assignment]  # the SDK's default hides the switch in a menu
    return mark
