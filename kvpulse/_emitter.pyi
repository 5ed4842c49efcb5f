from mmap import mmap

class HotPath:
    """The C side of a recorder; `CompiledRecorder` puts it to use."""

def populate(memory: mmap, offset: int, length: int, /) -> None:
    """Take page faults now, without the GIL."""
