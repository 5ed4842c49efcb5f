"""The pages keep their word: the README's example runs, links lead somewhere, commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvpulse.command import BENCHES, COMMANDS
from kvpulse.events import Kind
from kvpulse.reader import StreamReader, list_streams

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "DESIGN.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?:`|^    |^\$ )kvpulse ([a-z][a-z-]*(?: [a-z][a-z-]*)?)", re.MULTILINE)


def test_the_readme_s_example_records_one_request(tmp_path):
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert example.count('"/dev/shm/kvpulse"') == 1
    example = example.replace('"/dev/shm/kvpulse"', repr(str(tmp_path)))
    numbers = {"prompt_tokens": 40, "max_tokens": 8, "output_tokens": 8, "computed": 47}

    names = dict(numbers)
    exec(compile(example, str(README), "exec"), names)
    names["recorder"].close()

    [stream] = list_streams(tmp_path)
    kinds = []
    with StreamReader(stream) as reader:
        while (batch := reader.read()) is not None:
            kinds += [Kind(kind) for kind in batch.records["kind"]]
    told = [kind for kind in kinds if kind not in (Kind.KEYFRAME, Kind.DEFINE)]
    assert told == [Kind.ARRIVE, Kind.ADMIT, Kind.ALLOCATE, Kind.FREE, Kind.FINISH]


def test_the_readme_s_commands_for_one_s_own_engine_take_those_flags():
    said = README.read_text()
    assert "`kvpulse agent --journal /dev/shm/kvpulse`" in said

    helped = subprocess.run(
        [sys.executable, "-m", "kvpulse", "agent", "--help"], capture_output=True, text=True
    )

    assert helped.returncode == 0
    assert "--journal" in helped.stdout


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_relative_link_leads_to_a_file(page):
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]

    broken = [link for link in links if not (page.parent / link.partition("#")[0]).exists()]

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_command_that_a_page_names_exists(page):
    named = COMMAND.findall(page.read_text())

    unknown = [name for name in named if not is_command(name)]

    assert unknown == []


def is_command(name):
    """Whether it is in the table that `kvpulse --help` prints, and its part in that command's."""
    first, _, part = name.partition(" ")
    return first in COMMANDS and (first != "bench" or not part or part in BENCHES)


def test_every_page_of_the_documentation_can_be_reached_from_the_readme():
    reached, todo = set(), [README]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = (link.partition("#")[0] for link in LINK.findall(page.read_text()))
        todo += [(page.parent / link).resolve() for link in links if link and "://" not in link]

    assert {page.resolve() for page in (ROOT / "docs").glob("*.md")} <= reached
