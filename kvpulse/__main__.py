"""`python -m kvpulse` is the command `kvpulse`."""

import sys

from kvpulse.command import main

if __name__ == "__main__":
    sys.exit(main())
