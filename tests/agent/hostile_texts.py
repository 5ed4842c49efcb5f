"""A stream whose texts somebody else's code wrote: this package's would not let them in."""

import re
from pathlib import Path
from typing import Final

from kvpulse.identity import KeyedHashes
from kvpulse.recorder import Recorder

EVIL: Final = b'\x1b[31m<img src="x">\n\r\0\\{}\'%n|'
PLAIN: Final = '?[31m<img src="x">???\\{}\'%n|'  # what the agent keeps of it
MODEL: Final = '\x1b]0;owned\x07\n<script>alert("1")</script>\0\\'
PLAIN_MODEL: Final = '?]0;owned??<script>alert("1")</script>?\\'
HUGE_ID: Final = "<b>\x1b[5m\n" + "x" * (1 << 20)
CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
STAND_IN: Final = "S" * len(EVIL)


def write_hostile_journal(journal: Path) -> Path:
    """Record one running sequence with such a model, tenant and request id."""
    recorder = Recorder.open(journal, "hostile", total_blocks=8, block_size=4)
    recorder.config({"model": MODEL, "block_size": 4, "deep": "[" * 100})
    tenant = recorder.tenant(STAND_IN)
    hashes = KeyedHashes(b"k" * 32)
    recorder.arrive(1, 8, 4, tenant, request_hash=hashes.request_hash(HUGE_ID))
    recorder.admit(1, tenant)
    recorder.allocate(1, [3, 4], tenant)
    recorder.step(1, 8, 1, 1, 8, 0, 10, 10, 10)
    recorder.heartbeat(1, 1, 0)
    recorder.close()
    for path in recorder.directory.glob("*.seg"):
        path.write_bytes(path.read_bytes().replace(STAND_IN.encode(), EVIL))
    return journal
