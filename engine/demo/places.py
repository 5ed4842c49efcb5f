"""Where a demonstration keeps journal, store and logs, and what of that is left behind."""

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from engine.demo.options import DemoOptions, has_room
from engine.errors import EngineError
from kvpulse.paths import journal_dir, store_path


class NoPlaceError(EngineError):
    """A folder of a demonstration cannot be made."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"cannot make {error.filename}: {error.strerror}; "
            "choose another place with --journal, --store or TMPDIR"
        )


@dataclass(frozen=True, slots=True)
class Places:
    """Folders and files of one demonstration.

    Attributes:
        journal_is_ours: The journal may be removed once everything in it is stored.
        folder: Logs and accounts of this demonstration; removed at the end when all went well.
    """

    journal: Path
    journal_is_ours: bool
    store: str
    store_is_ours: bool
    folder: Path

    @classmethod
    def choose(cls, options: DemoOptions) -> "Places":
        """Make the folders that this demonstration needs.

        Raises:
            NoPlaceError: One of them cannot be made.
        """
        folder = Path()
        try:
            folder = Path(tempfile.mkdtemp(prefix="kvpulse-demo-"))
            return cls._choose(options, folder)
        except OSError as error:
            if folder.name:
                shutil.rmtree(folder, ignore_errors=True)
            raise NoPlaceError(error) from error

    @classmethod
    def _choose(cls, options: DemoOptions, folder: Path) -> "Places":
        store = options.store or str(folder / "demo.db" if options.fresh else store_path())
        if "://" not in store:
            Path(store).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        journal = options.journal or _own_journal(folder)
        journal.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(journal, options.journal is None, store, options.fresh, folder)

    @property
    def accounts(self) -> Path:
        """Where the engine writes what it counted."""
        return self.folder / "accounts.json"

    def log(self, name: str) -> Path:
        """Where a child process writes."""
        return self.folder / f"{name}.log"

    def clean_up(self, *, keep: bool) -> list[str]:
        """Remove what is not wanted any more; return what was left behind, in words."""
        left = []
        if self.journal_is_ours and not keep:
            shutil.rmtree(self.journal, ignore_errors=True)
        else:
            left.append(f"journal: {self.journal}")
        left.append(f"store: {without_password(self.store)}")
        if keep or self.store_is_ours:
            left.append(f"logs and accounts: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        return left


def without_password(store: str) -> str:
    """Return a store's address as it may be shown."""
    return re.sub(r"(://[^:/@]*):.*@", r"\1:***@", store)


def _own_journal(folder: Path) -> Path:
    """Return a folder in shared memory, or beside the logs where that is too small."""
    usual = journal_dir()
    if not has_room(usual):
        return folder / "journal"
    try:
        usual.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="demo-", dir=usual))
    except OSError:
        return folder / "journal"
