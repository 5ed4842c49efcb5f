"""What memory a process could still have."""

from engine.available_memory import available_bytes


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def make_meminfo(folder, kib):
    path = folder / "meminfo"
    path.write_text(f"MemTotal:  999 kB\nMemAvailable:   {kib} kB\n")
    return path


def test_what_the_kernel_calls_available_is_taken(tmp_path):
    meminfo = make_meminfo(tmp_path, 2048)

    assert available_bytes(meminfo=meminfo, cgroup=tmp_path / "none") == 2 * 2**20


def test_a_containers_limit_counts_less_what_it_uses_but_for_files_that_can_go(tmp_path):
    meminfo = make_meminfo(tmp_path, 2**20)
    files = {"memory_max": "5000000\n", "memory_current": "3000000\n"}
    cgroup = write(tmp_path / "group", memory_stat="anon 1\ninactive_file 500000\n", **files)

    assert available_bytes(meminfo=meminfo, cgroup=cgroup) == 2_500_000


def test_a_container_without_a_limit_has_the_machines_memory(tmp_path):
    meminfo = make_meminfo(tmp_path, 2048)
    cgroup = write(
        tmp_path / "group", memory_max="max\n", memory_current="1\n", memory_stat="anon 1\n"
    )

    assert available_bytes(meminfo=meminfo, cgroup=cgroup) == 2 * 2**20


def test_without_the_kernels_table_physical_memory_is_the_guide(tmp_path):
    found = available_bytes(meminfo=tmp_path / "none", cgroup=tmp_path / "none")

    assert found > 2**20
