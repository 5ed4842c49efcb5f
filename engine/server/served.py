"""Build the engine that `kvpulse serve` runs, and the HTTP application in front of it."""

from collections.abc import Callable

from starlette.applications import Starlette

from engine.engine_loop import Engine
from engine.faults.protocol import FaultInjector, NoFaults
from engine.faults.registry import build_faults
from engine.faults.setup import FaultSetup, TruthFile
from engine.open_engine import JournalSettings, open_engine
from engine.server.app import build_app
from engine.server.engine_thread import EngineThread
from engine.server.http_guard import LOOPBACK_NAMES
from engine.server.loaded_model import LoadedModel
from engine.server.openai_api import OpenAiApi
from engine.server.request_builder import RequestBuilder
from engine.server.retry_after import RetryAfter
from engine.server.serve_options import ServeOptions
from engine.server.served_model import ServedModel
from engine.server.tenant_aliases import TenantAliases
from kvpulse.identity import KeyedHashes
from kvpulse.recorder import Recorder


class ServedEngine:
    """The engine of one server process, and what was built around it."""

    def __init__(self, options: ServeOptions, model: LoadedModel, hashes: KeyedHashes) -> None:
        self.recorder: Recorder | None = None
        self.engine: Engine | None = None
        self.faults: FaultInjector = NoFaults()
        self._options = options
        self._model = model
        self._hashes = hashes

    def build(self) -> Engine:
        """Build engine and Recorder; call it on the thread that will own them."""
        options = self._options
        journal = None if options.journal is None else JournalSettings(options.journal)
        clock = self._model.clock
        truth = None if options.faults_truth is None else TruthFile(options.faults_truth)
        config = options.engine_config(self._model.num_blocks)
        self.faults = build_faults(options.faults, FaultSetup(clock, config, truth))
        self.engine, self.recorder = open_engine(
            config,
            self._model.runner,
            clock=clock,
            journal=journal,
            faults=self.faults,
            hashes=self._hashes,
        )
        return self.engine

    def thread(self, *, on_failure: Callable[[], None]) -> EngineThread:
        """Return the thread that will build and run the engine."""
        return EngineThread(
            self.build,
            now_ns=self._model.clock.now_ns,
            keep_pace=self._model.keep_pace,
            retry_after=RetryAfter(closing_seconds=self._options.drain_seconds),
            on_failure=on_failure,
        )

    def app(self, thread: EngineThread) -> Starlette:
        """Return the HTTP application; call it once the engine is built."""
        assert self.engine is not None, "the thread has started"
        options, config = self._options, self.engine.config
        model = ServedModel(
            names=self._model.names,
            text=self._model.text,
            vocab_size=self.engine.description.vocab_size,
            max_context=self.engine.max_context,
            num_blocks=config.total_blocks,
            span=self.engine.span,
        )
        tenants = TenantAliases(self._hashes, configured=options.tenants)
        builder = RequestBuilder(model, policy=config.policy, tenants=tenants, hashes=self._hashes)
        api = OpenAiApi(
            thread,
            model,
            builder,
            max_samples=options.max_samples,
            delay_seconds=self.faults.frontend_delay_seconds,
        )
        allowed = {*LOOPBACK_NAMES, options.host, *options.allowed_hosts}
        return build_app(api, thread, allowed_hosts=allowed)

    @property
    def model_name(self) -> str:
        """What clients call the model."""
        return self._model.names[0]
