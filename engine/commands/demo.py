"""`kvpulse demo`: everything at once, with a workload that puts the pool under pressure."""

import json
from typing import Final

from engine.demo.end_signals import ignore_end_signals, interrupt_on_end_signals
from engine.demo.options import DemoOptions, parse_options
from engine.demo.places import Places
from engine.demo.run import Demo
from engine.demo.saying import say
from engine.demo.summary import DemoSummary, in_words
from engine.errors import EngineError
from engine.faults.registry import in_words as fault_in_words
from kvpulse.errors import KvpulseError

EXIT_GOOD: Final = 0
EXIT_BAD: Final = 1
EXIT_FAILED: Final = 3


def main(argv: list[str]) -> int:
    """Run one demonstration."""
    options = parse_options(argv)
    interrupt_on_end_signals()
    _say_what(options)
    try:
        places = Places.choose(options)
    except EngineError as error:
        say(f"kvpulse demo: {error}")
        return EXIT_FAILED
    try:
        summary = Demo(options, places).run()
    except (EngineError, KvpulseError) as error:
        say(f"kvpulse demo: {error}")
        say("\n".join(places.clean_up(keep=True)))
        return EXIT_FAILED
    except (KeyboardInterrupt, BrokenPipeError):  # nobody reads on: like Ctrl-C
        ignore_end_signals()
        places.clean_up(keep=False)
        say("stopped before the end; nothing was summed up")
        return EXIT_GOOD
    except BaseException:
        places.clean_up(keep=True)
        raise
    try:
        _print_summary(options, summary)
    finally:
        left = places.clean_up(keep=bool(summary.faults))
    say("kept " + "; ".join(left))
    return EXIT_BAD if summary.faults else EXIT_GOOD


def _say_what(options: DemoOptions) -> None:
    if options.why_simulated:
        say(f"no real model: {options.why_simulated}; simulating one instead")
    shape = options.shape
    what = "a simulated engine" if options.simulated else "SmolLM2 on this machine's CPU"
    say(
        f"starting {what}, {shape.num_blocks} blocks of {shape.block_size} tokens, with an agent"
        + (" and a dashboard" if options.dashboard else "")
    )
    if options.pages_missing:
        say(
            "without a dashboard: Streamlit is not installed (pip install 'kvpulse-app[dashboard]')"
        )
    for fault in options.faults:
        say(f"this engine misbehaves on purpose: {fault_in_words(fault)}; see docs/faults.md")


def _print_summary(options: DemoOptions, summary: DemoSummary) -> None:
    if options.json:
        print(json.dumps(summary.as_json()), flush=True)
    else:
        print("\n".join(in_words(summary)), flush=True)
    for fault in summary.faults:
        say(f"NOT GOOD: {fault}")
