"""Serve the real pages over a `FakeReads`: `python serve_fake.py PORT '{"num_blocks": 16384}'`."""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

if __name__ == "__main__" and "FAKE_READS" not in os.environ:
    from streamlit.web import bootstrap

    from dashboard.theme import server_options

    os.environ["FAKE_READS"] = sys.argv[2]
    options = server_options(host="127.0.0.1", port=int(sys.argv[1]))
    bootstrap.load_config_options(options)
    bootstrap.run(__file__, False, [], options)
else:  # run by Streamlit, as the page script
    import runpy

    from dashboard import connection
    from tests.dashboard.fake_reads import FakeReads

    settings = json.loads(os.environ["FAKE_READS"])

    class MovingReads:
        """Answers as of now each time, so that every refresh has new data to draw."""

        def __getattr__(self, name: str) -> object:
            return getattr(FakeReads(**settings), name)

    connection.cached_reads = lambda store, made: MovingReads()
    runpy.run_path(str(ROOT / "dashboard" / "app.py"), run_name="__main__")
