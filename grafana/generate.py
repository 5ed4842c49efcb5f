"""Write the boards' JSON: `python -m grafana.generate`; with `--check`, say whether it is stale."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.pool_and_waits import pool_and_waits

BOARDS_FOLDER: Final = Path(__file__).parent / "boards"
BOARDS: Final = {"pool-and-waits.json": pool_and_waits}


def encode(board: Dashboard) -> str:
    """Return a board's JSON with sorted keys, so that a change shows as a small diff."""
    loose = json.loads(JSONEncoder(sort_keys=True).encode(board))
    return json.dumps(loose, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def stale_boards(folder: Path) -> list[Path]:
    """Return the files that differ from what the code builds."""
    return [
        folder / name
        for name, build in BOARDS.items()
        if not (folder / name).is_file() or (folder / name).read_text("utf-8") != encode(build())
    ]


def write_boards(folder: Path) -> list[Path]:
    """Write every board and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, build in BOARDS.items():
        (folder / name).write_text(encode(build()), "utf-8")
    return [folder / name for name in BOARDS]


def main(argv: Sequence[str]) -> int:
    """Run the command; 0 good, 1 stale."""
    parser = argparse.ArgumentParser(prog="python -m grafana.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    parser.add_argument("--out", type=Path, default=BOARDS_FOLDER, help="folder of the JSON files")
    options = parser.parse_args(argv)
    if not options.check:
        for path in write_boards(options.out):
            print(f"wrote {path}")
        return 0
    stale = stale_boards(options.out)
    for path in stale:
        print(f"{path} is stale: run python -m grafana.generate", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
