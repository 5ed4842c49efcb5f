"""Simulated requests whose contents branch off each other."""

import random

from engine.block_hashers import mix
from engine.request import Request, SimulatedContent
from engine.sampling_params import SamplingParams
from engine.simulation.trace_requests import TimedRequest

SEED = 20_261_130
BLOCK = 16


def branching_workload(*, num_requests, seed=SEED):
    """Return requests that go on from or branch off earlier ones, in bursts of up to three.

    A third of them belong to the batch tier.
    """
    source = random.Random(seed)
    now_ns, next_id = 0, 10
    paths = [[1, 2, 3, 4]]
    requests = []
    for number in range(num_requests):
        now_ns += int(source.expovariate(20) * 1e9)
        stem = source.choice(paths[-40:])
        stem = stem[: source.choice((len(stem), len(stem), max(2, len(stem) // 2)))]
        num_new = source.randint(4, 20)
        path = (stem + list(range(next_id, next_id + num_new)))[:120]
        next_id += num_new
        paths.append(path)
        for _ in range(source.choice((1, 1, 3))):
            content = SimulatedContent(
                len(path) * BLOCK + source.randrange(BLOCK),
                source.randint(8, 64),
                chained(path),
            )
            sampling = SamplingParams(max_tokens=64)
            tier = int(number % 3 == 0)
            request = Request(sampling=sampling, tier=tier, simulated=content)
            requests.append(TimedRequest(now_ns, request))
    return requests


def chained(path):
    """Return an identity for each block of a path, one built on the other."""
    hashes = [mix(path[0])]
    for part in path[1:]:
        hashes.append(mix(hashes[-1] ^ mix(part)) or 1)
    return tuple(hashes)
