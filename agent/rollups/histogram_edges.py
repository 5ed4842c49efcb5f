"""Upper edges of the exported histograms, in seconds."""

from typing import Final

# vLLM's lists, which contain every edge that OpenTelemetry advises for times to first and per
# token. Its lists per token and per request begin at 10 and 300 ms; here all resolve from 1 ms on.
FIRST_TOKEN_EDGES: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
INTER_TOKEN_EDGES: Final = (
    *(0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
REQUEST_EDGES: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
# Not vLLM's queue edges, whose first is 0.3 s: a pool wait of 50 ms must be seen.
WAIT_EDGES: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(60.0, 120.0),
)
LIFETIME_EDGES: Final = (*WAIT_EDGES, 300.0, 600.0, 1200.0, 1800.0)
# A call takes microseconds; one that takes a millisecond stands in a step's way.
ALLOCATE_EDGES: Final = (
    *(1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.1, 1.0),
)
STEP_EDGES: Final = (0.0005, *WAIT_EDGES[:12])
