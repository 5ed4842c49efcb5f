"""The runbook's section of a verdict, out of the checkout that the dashboard runs from."""

import re
from pathlib import Path
from typing import Final

from agent.triage.verdicts import Verdict

RUNBOOK: Final = Path(__file__).resolve().parents[1] / "docs" / "runbook.md"
LINK: Final = re.compile(r"\[([^]]+)]\((?!https?:)([^)]+)\)")


def runbook_section(verdict: Verdict, page: Path = RUNBOOK) -> str | None:
    """Return a section as Markdown without its heading; None where no runbook was installed.

    Its links to other pages are named instead: they lead to files, not to pages of the dashboard.
    """
    try:
        text = page.read_text()
    except OSError:
        return None
    _, found, rest = text.partition(f"\n## {verdict.value}\n")
    if not found:
        return None
    return LINK.sub(r"\1 (docs/\2)", rest.partition("\n## ")[0]).strip()
