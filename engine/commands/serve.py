"""`kvpulse serve`: an engine behind an OpenAI-compatible API, its KV cache recorded."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from typing import Final

from engine.errors import EngineError
from engine.model.model_files import ModelFileError
from engine.server.listening import Listener, bind_exactly, bind_next_free
from engine.server.loaded_model import TorchMissingError, load_model
from engine.server.policy_options import describe_policy
from engine.server.serve_options import DEFAULT_PORT, ServeOptions, parse_options
from engine.server.served import ServedEngine
from engine.server.serving import Serving
from kvpulse.errors import KvpulseError
from kvpulse.identity import KeyedHashes, load_or_create_key
from kvpulse.paths import journal_dir, key_path, store_path

EXIT_GOOD: Final = 0
EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2
EXIT_UNREACHABLE: Final = 3

_log = logging.getLogger("kvpulse.serve")


def main(argv: list[str]) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="serve: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    places = {"default_journal": journal_dir(), "default_key": key_path(store_path())}
    try:
        return asyncio.run(_Server(parse_options(argv, **places)).run())
    except (ModelFileError, TorchMissingError) as error:
        print(f"kvpulse serve: {error}", file=sys.stderr)
        return EXIT_UNREACHABLE
    except (EngineError, KvpulseError) as error:
        print(f"kvpulse serve: {error}", file=sys.stderr)
        return EXIT_CONFIG


class _Server:
    """One run of the command."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self._failed = False
        self._serving: Serving | None = None

    async def run(self) -> int:
        """Load, serve, and write the accounts; return the exit code."""
        started = time.monotonic()
        options = self._options
        options.engine_config()  # a bad limit is said before the model is loaded
        listener = _listen(options)
        with contextlib.closing(listener.socket):
            return await self._serve(listener, started)

    async def _serve(self, listener: Listener, started: float) -> int:
        options = self._options
        model = load_model(options, wall_ns=time.monotonic_ns)
        key = load_or_create_key(options.key_file)
        served = ServedEngine(options, model, KeyedHashes(key, options.tenants))
        thread = served.thread(on_failure=self._engine_failed)
        await thread.start()
        for line in model.memory_lines:
            _log.info("%s", line)
        self._describe(served, time.monotonic() - started)
        self._serving = Serving(
            thread,
            served.app(thread),
            listener,
            drain_seconds=options.drain_seconds,
            on_ready=lambda: self._say_ready(served, listener),
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._serving.stop)
        await self._serving.run()
        self._write_accounts(served)
        return EXIT_FAILED if self._failed else EXIT_GOOD

    def _engine_failed(self) -> None:
        self._failed = True
        if self._serving is not None:
            self._serving.stop()

    def _describe(self, served: ServedEngine, seconds: float) -> None:
        assert served.engine is not None, "the thread has started"
        engine, config = served.engine, served.engine.config
        runner = engine.description
        num_tokens = config.total_blocks // engine.span.num_groups * config.block_size
        kv_mib = num_tokens * runner.bytes_per_token / 2**20
        kind = f"{runner.runner}, {runner.kv_format}"
        _log.info("%s (%s), ready in %.1f s", runner.model, kind, seconds)
        _log.info(
            "pool of %d blocks of %d tokens: %d tokens, %.0f MiB; context %d, batch %d, queue %d",
            config.total_blocks,
            config.block_size,
            num_tokens,
            kv_mib,
            engine.max_context,
            config.max_batch,
            config.max_queue,
        )
        index, preemption = config.prefix_index, config.preemption
        _log.info(
            "prefix index: %s; preemption: %s; %d host blocks",
            index,
            preemption,
            config.host_blocks,
        )
        for line in describe_policy(config.policy):
            _log.info("%s", line)
        if served.recorder is None:
            _log.info("nothing is recorded (--no-journal)")
        else:
            _log.info("recording to %s", served.recorder.directory)
        for fault in self._options.faults:
            _log.warning("the fault %s is on: this engine misbehaves", fault)

    def _say_ready(self, served: ServedEngine, listener: Listener) -> None:
        recorder = served.recorder
        if self._options.json:
            ready = {
                "event": "ready",
                "url": listener.url,
                "port": listener.port,
                "pid": os.getpid(),
                "model": served.model_name,
                "engine": self._options.engine,
                "journal": None if recorder is None else str(self._options.journal),
                "run_id": None if recorder is None else recorder.run_id,
            }
            print(json.dumps(ready), flush=True)
            return
        if listener.port != listener.asked_port and listener.asked_port:
            print(f"Port {listener.asked_port} is taken; using {listener.port}.")
        print(f"Serving {served.model_name} at {listener.url}/v1 (Ctrl-C ends it)", flush=True)

    def _write_accounts(self, served: ServedEngine) -> None:
        target = self._options.accounts_file
        if target is None or served.engine is None:
            return
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        draft.write_text(json.dumps(served.engine.accounts().as_json(), indent=1) + "\n")
        os.replace(draft, target)


def _listen(options: ServeOptions) -> Listener:
    if options.port is None:
        return bind_next_free(options.host, DEFAULT_PORT)
    return bind_exactly(options.host, options.port)
