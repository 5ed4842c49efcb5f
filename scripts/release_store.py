"""Compile the C emitter for aarch64 and check in the disassembly that it commits in order.

On aarch64 stores may overtake each other. `write_record` is the one place where C moves the commit
word, so it must do that with one store-release (`stlr`), as its last store to memory. This looks at
the machine code; it was not run on aarch64.

    apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross
"""

import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "kvpulse" / "_emitter.c"
TOOLS = "aarch64-linux-gnu-"
FUNCTION = re.compile(r"^[0-9a-f]+ <write_record>:\n((?:.+\n)+)", re.MULTILINE)
INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\s+(\S+)\s*(.*)$", re.MULTILINE)


def disassemble() -> str:
    """Return the emitter's machine code for aarch64, in words."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "emitter.o"
        headers = sysconfig.get_paths()["include"]
        flags = ["-std=c11", "-O2", "-fPIC", f"-I{headers}"]
        subprocess.run([f"{TOOLS}gcc", *flags, "-c", SOURCE, "-o", target], check=True)
        return subprocess.run(
            [f"{TOOLS}objdump", "--disassemble", "--no-show-raw-insn", target],
            check=True,
            capture_output=True,
            text=True,
        ).stdout


def fault(code: str) -> str:
    """Return what is wrong with how `code` commits a record; nothing where all is well."""
    function = FUNCTION.search(code)
    if function is None:
        return "there is no function write_record"
    instructions = INSTRUCTION.findall(function[1])
    stores = [
        name for name, operands in instructions if name.startswith("st") and "[sp" not in operands
    ]
    if stores.count("stlr") != 1:
        return f"write_record has {stores.count('stlr')} store-releases, not one: {stores}"
    if stores[-1] != "stlr":
        return f"write_record stores after the commit word: {stores}"
    return ""


def main() -> int:
    """Check, say what was found, and return the exit code."""
    try:
        code = disassemble()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"cannot cross-compile: {error}", file=sys.stderr)
        return 3
    found = fault(code)
    print(found or "the commit is a store-release, and the last store of write_record")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
