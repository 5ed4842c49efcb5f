"""Colours, server options and the little CSS that Streamlit's own theme cannot say.

A colour means one thing everywhere (charts, map, tables, Grafana): blue is active, amber is cached,
slate is free, red is what hurts. Text never relies on colour alone.
"""

from typing import Final

ACTIVE: Final = "#2563eb"
CACHED: Final = "#d97706"
FREE: Final = "#94a3b8"
UNKNOWN: Final = "#6b7280"
LEAKED: Final = "#dc2626"

WAIT_CLASS_COLOURS: Final = {
    "pool": "#dc2626",
    "scheduler": "#7c3aed",
    "quota": "#0891b2",
    "transfer": "#65a30d",
}
WAIT_CAUSE_COLOURS: Final = {
    "pool": "#dc2626",
    "pool_behind": "#f87171",
    "batch_slots": "#7c3aed",
    "token_budget": "#a78bfa",
    "engine_busy": "#c4b5fd",
    "tenant_quota": "#0891b2",
    "deferred": "#65a30d",
}
WHERE_COLOURS: Final = {
    "pool": "#dc2626",
    "pool_behind": "#f87171",
    "scheduler": "#7c3aed",
    "quota": "#0891b2",
    "transfer": "#65a30d",
    "prefill": "#0ea5e9",
}
PREFILL: Final = "#0ea5e9"
DECODE: Final = ACTIVE
QUANTILE_COLOURS: Final = {"p50": "#93c5fd", "p95": "#2563eb", "p99": "#db2777"}
MARK_COLOURS: Final = {
    "restart": "#7c3aed",
    "gap": UNKNOWN,
    "config": "#0891b2",
    "leak": LEAKED,
    "audit_failed": LEAKED,
    "pool": "#0d9488",
    "clock_step": "#b45309",
    "incident": "#db2777",
}
# For owners and tenants on the map, where amber, red and grey already say cached, leaked, unknown.
HOLDERS: Final = (
    "#2563eb", "#0d9488", "#db2777", "#7c3aed", "#65a30d",
    "#0891b2", "#4338ca", "#c026d3", "#047857", "#38bdf8",
)  # fmt: skip
# Told apart by people who see few colours too; used for rejection reasons.
CATEGORICAL: Final = (
    "#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed",
    "#0891b2", "#ca8a04", "#dc2626", "#4d7c0f", "#9333ea",
)  # fmt: skip
# Light to dark; both ends stand out from a white and from a dark page.
SEQUENTIAL: Final = ("#bfdbfe", "#93c5fd", "#60a5fa", "#3b82f6", "#2563eb", "#1d4ed8", "#1e3a8a")
TONES: Final = {"good": "#059669", "notice": "#d97706", "bad": "#dc2626", "unknown": UNKNOWN}

THEME_OPTIONS: Final[dict[str, object]] = {
    "theme.primaryColor": ACTIVE,
    "theme.baseRadius": "8px",
    "theme.chartCategoricalColors": list(CATEGORICAL),
    "theme.light.backgroundColor": "#ffffff",
    "theme.light.secondaryBackgroundColor": "#f4f6fa",
    "theme.light.textColor": "#0f172a",
    "theme.light.borderColor": "#dbe1ea",
    "theme.dark.backgroundColor": "#0b1120",
    "theme.dark.secondaryBackgroundColor": "#141c2e",
    "theme.dark.textColor": "#e5eaf3",
    "theme.dark.borderColor": "#2a3550",
    "theme.dark.primaryColor": "#60a5fa",
}

# Streamlit dims what a rerun has not yet drawn again, and shows a running man at each tick: both
# would flicker once a second.
CSS: Final = """
<style>
[data-stale="true"], .stale-element { opacity: 1 !important; transition: none !important; }
[data-testid="stStatusWidget"] { display: none; }
.stMainBlockContainer { padding: 3.9rem 2.5rem 3rem; max-width: 1500px; }
/* The menu's first word stands above the content's left edge, at any width. */
[data-testid="stTopNav"] { padding-left: calc(max(0px, (100vw - 1500px) / 2) + 2rem); }
/* As tall as the boxes beside them, so that the labels of a row of controls stand on one line. */
[data-testid="stButtonGroup"] button { min-height: 2.5rem; }
/* Room for the label that stands above the handle at either end. */
[data-testid="stSlider"] { padding: 0 1.6rem; }
@media (max-width: 640px) {
  .stMainBlockContainer { padding-left: .9rem; padding-right: .9rem; }
  [data-testid="stButtonGroup"] button { padding-left: .55rem; padding-right: .55rem; }
}
.kv-line { font-size: .82rem; line-height: 1.5; opacity: .78; overflow-wrap: anywhere; }
.kv-status { border-left: 5px solid var(--tone); border-radius: 6px; padding: .6rem .9rem;
  background: color-mix(in srgb, var(--tone) 9%, transparent); }
.kv-status b { font-size: 1.15rem; font-weight: 650; line-height: 1.35; display: block; }
.kv-status span { font-size: .86rem; opacity: .82; overflow-wrap: anywhere; }
.kv-verdict { border: 1px solid color-mix(in srgb, var(--tone) 45%, transparent);
  border-left: 6px solid var(--tone); border-radius: 8px; padding: .7rem 1rem;
  background: color-mix(in srgb, var(--tone) 8%, transparent); overflow-wrap: anywhere; }
.kv-verdict .over { font-size: .82rem; }
.kv-verdict .over b { text-transform: uppercase; letter-spacing: .04em; }
.kv-verdict .said { font-size: 1.3rem; font-weight: 650; line-height: 1.35;
  margin: .15rem 0 .4rem; }
.kv-verdict .do { display: grid; grid-template-columns: 6.2rem 1fr; font-size: .88rem;
  padding: .15rem 0; line-height: 1.5; }
.kv-verdict .do i { font-style: normal; opacity: .74; }
.kv-verdict ul { margin: 0; padding: 0; list-style: none; font-size: inherit !important; }
.kv-verdict li { margin: 0; padding: 0; font-size: inherit !important; line-height: inherit; }
.kv-verdict em { font-style: normal; font-weight: 600; border-bottom: 2px solid var(--tone); }
.kv-verdict + .kv-verdict { margin-top: .6rem; }
.kv-verdict.flat { background: none; border-width: 0 0 0 3px; border-radius: 0;
  padding: .1rem 0 .1rem .8rem; font-size: .9rem; }
.kv-verdict.calm { border-width: 0 0 0 6px; padding: .3rem .9rem; font-size: .88rem; }
.kv-verdict.calm span { opacity: .82; }
.kv-strip { display: grid; gap: .6rem;
  grid-template-columns: repeat(var(--columns), minmax(0, 1fr)); }
@media (max-width: 1100px) {
  .kv-strip { grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
}
.kv-tile { border: 1px solid color-mix(in srgb, currentColor 16%, transparent); border-radius: 8px;
  padding: .55rem .75rem .6rem; min-width: 0; }
.kv-tile .name { font-size: .78rem; opacity: .74; }
.kv-tile .value { font-size: 1.4rem; font-weight: 620; line-height: 1.3; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.kv-tile .note { font-size: .76rem; opacity: .74; line-height: 1.35; overflow-wrap: anywhere; }
.kv-tile.empty { border-style: dashed; }
.kv-tile.empty .value { opacity: .45; }
.kv-legend { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; font-size: .84rem;
  font-variant-numeric: tabular-nums; }
.kv-legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 3px;
  margin-right: .4rem; vertical-align: -.08rem; background: var(--tone); }
.kv-legend i.hatched { background: repeating-linear-gradient(45deg, var(--tone) 0 2px,
  color-mix(in srgb, var(--tone) 35%, transparent) 2px 4px); }
.kv-facts { display: grid; gap: .5rem 1.2rem; font-size: .86rem; overflow-wrap: anywhere;
  grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); font-variant-numeric: tabular-nums; }
.kv-facts .name { font-size: .76rem; opacity: .7; }
.kv-facts i { opacity: .6; }
.kv-legend b { font-weight: 620; }
.kv-table { font-size: .88rem; font-variant-numeric: tabular-nums; }
.kv-judged { display: grid; gap: .1rem .9rem; align-items: center; padding: .4rem 0;
  grid-template-columns: minmax(0, 1.5fr) repeat(3, minmax(0, .8fr)) minmax(0, 2.2fr) 5.2rem;
  border-top: 1px solid color-mix(in srgb, currentColor 12%, transparent); }
.kv-judged.head { font-size: .78rem; border-top: 0; }
.kv-judged.head span { opacity: .74; overflow-wrap: anywhere; }
.kv-judged .ends { display: flex; justify-content: space-between; }
.kv-judged .ends i { font-style: normal; }
.kv-judged > span:nth-child(-n+4) { text-align: right; }
.kv-judged > b { font-weight: 600; }
.kv-judged > :first-child { text-align: left !important; }
.kv-judged .notes { grid-column: 1 / -1; font-size: .78rem; opacity: .74; }
.kv-answer { justify-self: start; padding: .05rem .5rem; border-radius: 99px; font-size: .8rem;
  border: 1px solid color-mix(in srgb, currentColor 30%, transparent); }
.kv-answer.worse { background: #dc2626; border-color: #dc2626; color: #fff; }
.kv-answer.better { background: #047857; border-color: #047857; color: #fff; }
.kv-answer.unknown { border-style: dashed; }
.kv-scale { position: relative; height: 1.1rem; --tone: #64748b; }
.kv-scale i { position: absolute; top: 0; bottom: 0; }
.kv-scale .floor { background: color-mix(in srgb, currentColor 9%, transparent); }
.kv-scale .zero { left: 50%;
  border-left: 1px solid color-mix(in srgb, currentColor 45%, transparent); }
.kv-scale .interval { top: .35rem; bottom: .35rem; min-width: 3px; border-radius: 2px;
  background: var(--tone); }
.kv-scale .point { width: 0; border-left: 3px solid var(--tone); top: .1rem; bottom: .1rem;
  margin-left: -1.5px; }
.kv-scale.worse { --tone: #dc2626; }
.kv-scale.better { --tone: #059669; }
.kv-scale.none { border-bottom: 1px dashed color-mix(in srgb, currentColor 25%, transparent);
  height: .55rem; align-self: start; }
.kv-where { display: grid; gap: .35rem .7rem; align-items: center; font-size: .84rem;
  grid-template-columns: fit-content(30%) 1fr fit-content(25%);
  font-variant-numeric: tabular-nums; }
.kv-where .bar { display: flex; height: 1.3rem; border-radius: 4px; overflow: hidden;
  background: color-mix(in srgb, currentColor 7%, transparent); }
.kv-where .bar i { background: var(--tone); }
.kv-where span { overflow-wrap: anywhere; }
.kv-beside th i { display: inline-block; width: .7rem; height: .7rem; border-radius: 3px;
  margin-right: .4rem; background: var(--tone); }
.kv-beside tfoot td, .kv-beside tfoot th { font-weight: 650; opacity: 1; }
.kv-beside { width: 100%; border-collapse: collapse; font-size: .84rem; table-layout: fixed;
  font-variant-numeric: tabular-nums; }
.kv-beside th, .kv-beside td { text-align: left; padding: .25rem .6rem .25rem 0; font-weight: 400;
  vertical-align: top; overflow-wrap: anywhere; border: 0;
  border-top: 1px solid color-mix(in srgb, currentColor 12%, transparent); }
.kv-beside thead td, .kv-beside th { opacity: .78; }
.kv-beside thead th, .kv-beside thead td { border-top: 0; }
.kv-beside .differs td { font-weight: 650;
  color: color-mix(in srgb, #d97706 72%, currentColor); }
.stElementContainer:has(.kv-title) { display: none; }
.kv-title { font-size: 1.25rem; font-weight: 650; }
@media (max-width: 640px) {
  .stElementContainer:has(.kv-title) { display: block; }
  .kv-strip { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .kv-tile:last-child:nth-child(odd) { grid-column: 1 / -1; }
  .kv-tile .value { font-size: 1.15rem; }
  .kv-verdict .do { grid-template-columns: 1fr; }
  .kv-verdict .said { font-size: 1.12rem; }
  .kv-judged { grid-template-columns: repeat(3, minmax(0, 1fr)) 5.2rem; }
  .kv-judged > :first-child { grid-column: 1 / 4; }
  .kv-judged > .kv-answer, .kv-judged.head > :last-child { grid-column: 4; grid-row: 1;
    justify-self: end; }
  .kv-judged .kv-scale, .kv-judged .ends { grid-column: 1 / -1; }
  .kv-judged > span:nth-child(-n+4) { text-align: left; }
}
</style>
"""


def server_options(*, host: str, port: int) -> dict[str, object]:
    """Return Streamlit's options: loopback unless told otherwise, silent, offline, no toolbar."""
    return THEME_OPTIONS | {
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.enableStaticServing": False,
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "global.developmentMode": False,
    }
