"""Where journal, store, key and models lie when nobody says otherwise."""

import os
from collections.abc import Mapping
from pathlib import Path


def journal_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return `$XDG_RUNTIME_DIR/kvpulse`, else a directory of this user's in shared memory."""
    runtime = _environ(environ).get("XDG_RUNTIME_DIR")
    return Path(runtime) / "kvpulse" if runtime else Path(f"/dev/shm/kvpulse-{os.geteuid()}")


def store_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return the embedded store's file, `$XDG_STATE_HOME/kvpulse/kvpulse.db`."""
    return _xdg(environ, "XDG_STATE_HOME", ".local/state") / "kvpulse" / "kvpulse.db"


def key_path(store: Path) -> Path:
    """Return the key file that belongs to a store: beside it, never in it."""
    return store.with_name("identity.key")


def models_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return `$XDG_CACHE_HOME/kvpulse/models`."""
    return _xdg(environ, "XDG_CACHE_HOME", ".cache") / "kvpulse" / "models"


def _environ(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    return os.environ if environ is None else environ


def _xdg(environ: Mapping[str, str] | None, name: str, below_home: str) -> Path:
    values = _environ(environ)
    # The specification says that a relative path is to be ignored.
    if (value := values.get(name)) and Path(value).is_absolute():
        return Path(value)
    return Path(values.get("HOME") or Path.home()) / below_home
