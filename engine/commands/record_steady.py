"""Record runs of steady traffic, one for each line of standard input; `kvpulse drill` starts it.

A line is a JSON object with the fields of `SteadyRun`, and `journal`, the folder to record into.
The line that answers names the stream's directory.
"""

import json
import sys
from pathlib import Path

from engine.simulation.steady_traffic import SteadyRun, steady_requests
from engine.simulation.trace_recording import TraceRun, record_trace


def main() -> int:
    """Answer line by line until there are no more."""
    for line in sys.stdin:
        asked = json.loads(line)
        journal = Path(asked.pop("journal"))
        run = SteadyRun(**asked)
        recorded = record_trace(
            steady_requests(run),
            journal=journal,
            run=TraceRun(config=run.config, cost=run.cost, seconds=run.seconds),
        )
        answer = {"directory": str(recorded.directory), "not_written": recorded.not_written}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
