"""Every threshold of triage, in one frozen value; `docs/triage.md` lists them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Targets:
    """What users are to get. Above a target a condition hurts; below it, it is merely so.

    Attributes:
        ttft_seconds: From arrival to the first token, at the 95th percentile.
        inter_token_seconds: Between two tokens of a sequence, at the 95th percentile.
        pool_wait_seconds: Mean wait for blocks of those that arrived; also for a place in the
            batch and for tokens of a step.
    """

    ttft_seconds: float = 10.0
    inter_token_seconds: float = 0.25
    pool_wait_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a rule holds.

    Attributes:
        stale_seconds: So long without a commit of a live run, and what is stored is the past.
        lasting_seconds: So far back waiting has to have been bad as well, before it is called
            congestion: the long window beside the short one of burn-rate alerts (Beyer et al. 2018,
            "The Site Reliability Workbook", chapter 5). Over it, the mean wait has to reach what
            users may wait for a first token at all. A queue at nine tenths of what it can take
            reaches half of that by chance; twice that traffic reaches it within three minutes.
        idle_step_seconds: Live sequences and no step for so long: nothing moves.
        first_step_seconds: The same before an engine's first step, which compiles kernels and
            fills caches.
        no_admission_seconds: Somebody waits, there is room, and nobody was let in for so long.
        least_waiting: Sequences kept waiting by one cause, on average, to be worth a word.
        scarce_ratio: Free and cached blocks, as part of the pool, below which it is full.
        shrunk_ratio: A pool smaller than at its run's start by this part has shrunk.
        hog_share: Part of all active block-seconds that one tenant alone has.
        hog_growth: By so much has its share grown against its own past.
        hog_pool_ratio: Part of the pool that it holds, below which nobody minds.
        hog_crowds_ratio: The same, above which the others are crowded though nobody waits yet: no
            two tenants can have as much.
        thrash_ratio: Tokens computed again, as part of all that were computed.
        slow_step_ratio: Compute time of steps over what the engine's past predicts for the same
            prefill, batch and context.
        slow_frontend_seconds: Median time in the server before the engine has a request.
        slow_frontend_ratio: That time as part of the users' whole wait for a first token.
        shift_ratio: Tokens asked for in a second, over those of the engine's past.
        rejected_ratio: Requests refused as too large for ever, or for want of room, as part of
            those that came.
        least_rejected: Fewer than so many of them are single cases.
        head_wait_seconds: One sequence at the head of the line for so long.
        least_past_seconds: Less history than this is no past to compare with.
        least_known_ratio: Part of the window's events that has to be known before what was measured
            over the window may lead.
    """

    targets: Targets = Targets()
    stale_seconds: float = 15.0
    lasting_seconds: float = 600.0
    idle_step_seconds: float = 10.0
    first_step_seconds: float = 120.0
    no_admission_seconds: float = 10.0
    least_waiting: float = 1.0
    scarce_ratio: float = 0.1
    shrunk_ratio: float = 0.1
    hog_share: float = 0.5
    hog_growth: float = 0.25
    hog_pool_ratio: float = 0.2
    hog_crowds_ratio: float = 0.5
    thrash_ratio: float = 0.2
    slow_step_ratio: float = 1.5
    slow_frontend_seconds: float = 0.25
    slow_frontend_ratio: float = 0.25
    shift_ratio: float = 2.0
    rejected_ratio: float = 0.05
    least_rejected: int = 5
    head_wait_seconds: float = 15.0
    least_past_seconds: float = 120.0
    least_known_ratio: float = 0.95
