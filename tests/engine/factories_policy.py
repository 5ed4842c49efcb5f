"""Engines with policies, and what must hold of any engine after each act."""

from collections import Counter, defaultdict
from dataclasses import replace

from agent.ledger.delta import RunShape
from agent.ledger.ledger import Ledger
from engine.block_table import NULL_BLOCK
from engine.clock import VirtualClock
from engine.policy.scheduling_policy import SchedulingPolicy
from engine.policy.victims import Why
from engine.recording import KeyframeSource
from engine.runner import NO_TOKEN
from kvpulse.events import FinishReason, Kind
from kvpulse.reader import StreamReader
from kvpulse.recorder import Recorder
from tests.engine.factories_engine import make_engine, make_request
from tests.engine.factories_ledger import PlainLedger

MS = 1_000_000
SECOND = 1_000 * MS
MIB = 2**20


def policed_engine(*, clock=None, policy=None, **settings):
    """Return a small engine whose policy has the given fields."""
    return make_engine(clock=clock, policy=SchedulingPolicy(**(policy or {})), **settings)


# Models without a window, with one in all layers, and with one in some of their KV groups.
WINDOWS = (
    {},
    {"window": 1},
    {"window": 5},
    {"window": 14},
    {"groups": (None, 6)},
    {"groups": (None, None, 1)},
    {"groups": (None, 3, 3)},
)


def with_windows(settings):
    """Merge what was drawn of WINDOWS into an engine's settings.

    The tree knows no groups, and each group needs blocks of its own.
    """
    windows = settings.pop("windows")
    if "groups" in windows:
        settings["total_blocks"] *= len(windows["groups"])
        if settings["prefix_index"] == "radix":
            settings["prefix_index"] = "hash"
    return settings | windows


def ask(
    prompt_tokens=8, max_tokens=8, *, sampling=None, prefix="", tenant="", ends_at=None, **fields
):
    """Return a request; `fields` are those of the request itself, such as its priority."""
    request = make_request(
        prompt_tokens, max_tokens, prefix=prefix, tenant=tenant, ends_at=ends_at, **(sampling or {})
    )
    return replace(request, **fields)


class Watched:
    """An engine whose clients remember what they were told, checked after each act.

    With a `folder` it is recorded there, and `check_journal` holds the journal against the laws.
    """

    def __init__(self, *, folder=None, **settings):
        self.clock = VirtualClock()
        self.recorder, keyframes = None, KeyframeSource()
        if folder is not None:
            self.shape = RunShape(settings["total_blocks"], settings["host_blocks"], 4)
            self.recorder = Recorder.open(
                folder,
                "engine",
                total_blocks=self.shape.total_blocks,
                block_size=self.shape.block_size,
                host_blocks=self.shape.host_blocks,
                snapshot=keyframes.take,
                clock=self.clock.now_ns,
                wall_clock=self.clock.now_ns,
                segment_bytes=MIB,
            )
        self.engine = policed_engine(
            clock=self.clock, recorder=self.recorder, keyframes=keyframes, **settings
        )
        self.accepted = {}
        self.ends = defaultdict(Counter)
        self.whole_ends = Counter()
        self.tokens = Counter()
        self.dropped = set()
        self.num_acts = 0
        self.took_the_place_of = set()

    def submit(self, request):
        admission = self.engine.submit(request)
        if admission.accepted:
            self.accepted[admission.seq_id] = request
        self.check()
        return admission

    def step(self):
        self.hear(self.engine.step())
        if self.engine.idle and self.engine.has_work:
            self.clock.advance(10 * MS)
        self.check()

    def wait(self, duration_ns):
        self.clock.advance(duration_ns)
        self.hear(self.engine.tick())
        self.check()

    def cancel(self, root):
        assert self.engine.cancel(root)
        self.dropped.add(root)
        self.check()

    def stop(self, seq):
        self.dropped.add(seq.root_id)
        assert self.engine.stop(seq.seq_id)
        self.check()

    def hear(self, events):
        for event in events:
            root, reason = event.root or event.seq_id, event.finish_reason
            assert root in self.accepted, "nobody hears of what he did not send"
            assert not self.whole_ends[root], "nothing follows the end of a request"
            if event.token_id != NO_TOKEN:
                self.tokens[root] += 1
                assert not self.ends[root][event.index], "nothing follows an end"
            if reason in (FinishReason.STOP, FinishReason.LENGTH):
                self.ends[root][event.index] += 1
            elif reason is not None:
                assert not any(seq.root_id == root for seq in self.live)
                self.whole_ends[root] += 1
            if reason is FinishReason.REJECTED:
                assert self.engine.rejections.pop(root).message
                assert not self.tokens[root], "rejected only if no token was produced"

    def check_journal(self):
        """Follow what was recorded: every audit, every law, and nothing is left over."""
        self.engine.close()
        assert self.recorder.not_written() == {}
        plain = PlainLedger(in_order=False).read(self.recorder.directory)
        acts = self.engine.accounts().acts
        assert dict(plain.events) == {kind: n for kind, n in acts.items() if n}
        assert plain.audits
        assert not any(plain.tables.values())
        assert not plain.host
        ledger, reader = Ledger(self.shape), StreamReader(self.recorder.directory)
        while (batch := reader.read()) is not None:
            ledger.apply(batch)
        delta = ledger.take()
        assert not delta.audits.failures
        assert delta.audits.passed
        assert not delta.leaks

    @property
    def scheduler(self):
        return self.engine._scheduler

    @property
    def live(self):
        return list(self.scheduler.live.values())

    def check(self):
        self.num_acts += 1
        self.engine.check()
        pool = self.engine._pool
        assert pool.num_active + pool.num_cached + pool.num_free == pool.total_blocks
        self.check_preemptions()
        check_quotas(self.engine)
        check_waits(self.scheduler)
        check_numbers(self.engine)
        check_spans(self.engine)

    def check_preemptions(self):
        """Nobody takes the place of one that took its own, however often somebody gives way."""
        for preemption in self.scheduler.latest_preemptions:
            if preemption.why is Why.OUTRANKED:
                pair = (preemption.beneficiary, preemption.victim)
                self.took_the_place_of.add(pair)
                assert pair[::-1] not in self.took_the_place_of

    def finish(self, *, most_steps=3_000):
        """Step until nothing is live: every admissible request ends within a bound."""
        for _ in range(most_steps):
            if not self.engine.has_work:
                break
            self.step()
        assert not self.engine.has_work, f"still live after {most_steps} steps: {self.live}"
        assert self.engine._pool.num_active == 0
        host = self.engine._host_pool
        assert host is None or host.num_active == 0
        for root, request in self.accepted.items():
            if root in self.dropped or self.whole_ends[root]:
                continue
            sampling = request.sampling
            count = sampling.n if sampling.beam_width else sampling.num_sequences
            assert self.ends[root] == Counter(range(count)), "each sample ends once"


def check_quotas(engine):
    """Nobody is above its ceiling, and every reserve can be had (unless blocks were taken away)."""
    quotas, pool = engine._scheduler.quotas, engine._pool
    for tenant, active in pool.active_by_tenant.items():
        assert 0 <= active <= quotas.ceiling(tenant)
    if pool.total_blocks == engine.config.total_blocks:
        unfilled = sum(quotas.unfilled_reserve(tenant) for tenant in quotas._reserves)
        assert unfilled <= pool.num_available


def check_waits(scheduler):
    """Everyone who waits and was judged has a cause, and a blocker that waits ahead of it."""
    place = {seq.seq_id: i for i, seq in enumerate(scheduler.waiting)}
    for seq in scheduler.waiting:
        if seq.wait_flags:
            assert seq.wait_cause == (seq.wait_flags & -seq.wait_flags).bit_length()
    judged = [seq for seq in scheduler.waiting if seq.wait_blocker in place]
    assert all(place[seq.wait_blocker] < place[seq.seq_id] for seq in judged)
    waiting_for_pool = sum(seq.wait_cause in (4, 5) for seq in scheduler.waiting)
    assert scheduler.judge.num_waiting_for_pool == waiting_for_pool
    assert len(scheduler.running) <= scheduler._config.max_batch
    assert scheduler._lineup.num_places_taken <= scheduler._config.max_batch


def check_spans(engine):
    """In a group with a window nobody holds more than window and one step's tokens need."""
    windows = engine.span.windows
    for seq in engine._scheduler.running:
        for group, window in enumerate(windows):
            entries = seq.block_table.block_ids[group :: len(windows)]
            num_held = len(entries) - entries.count(NULL_BLOCK)
            most = len(entries) if window is None else engine.span.most_under(window)
            assert num_held <= most


def check_numbers(engine):
    """Law 4: what came and what split off has ended or is live."""
    lineup, tally = engine._scheduler._lineup, engine._scheduler.tally
    forks = {(root, seq) for root, forks in lineup.forks.items() for seq in forks}
    assert forks == {(seq.root_id, seq) for seq in lineup.live.values() if seq.parent_id}
    ended = sum(tally.finished.values()) + sum(tally.rejected.values())
    assert tally.arrivals + tally.forks == ended + len(engine._scheduler.live)
    acts = engine.accounts().acts
    assert acts[Kind.PREEMPT] >= acts[Kind.RESUME]
