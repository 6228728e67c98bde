"""Every check of `doctor` made to warn or fail: by the thing itself where it can be had, else by its facts."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.cgroups import processor_quota
from shardstream.diagnose import Finding
from shardstream.diagnose.doctor import caching, gpus, memory, packages, processors
from shardstream.diagnose.doctor.gpus import Gpus, TorchBuild
from shardstream.diagnose.doctor.workload import Workload
from shardstream.errors import UsageError
from shardstream.extras import install_command
from shardstream.testing import make_dataset
from shardstream.threads import cores_left

NEWEST = {"torch": "2.14"}
WORK = Workload(ranks=1, workers=8, batch_bytes=20_000_000)


def doctor_elsewhere(before: str, *arguments: str, **environment: str) -> dict[str, Finding]:
    """What the command finds in a process of its own, in which some lines were run first."""
    program = f"{before}\nfrom shardstream.cli import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--json", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1), done.stderr
    return {one["check"]: Finding(**one) for one in found["findings"]}


def level_and_fix(finding: Finding) -> tuple[str, str]:
    return finding.level, finding.fix


# ------------------------------------------------------------------------------------------------------- as a whole


def test_the_list_names_every_check_once_and_each_trouble_has_a_fix(tmp_path: Path) -> None:
    found = ss.doctor(cache=str(tmp_path / "cache"))
    names = [one.check for one in found]
    assert names == [
        *("versions", "Pillow", "simplejpeg", "numba", "OpenCV", "processors", "threads", "start method"),
        *("/dev/shm", "memory", "open files", "GPU", "pinned memory", "NUMA", "cache"),
    ]
    assert all(one.fact for one in found)
    assert all(bool(one.fix) == (one.level != "ok") for one in found)
    assert not (tmp_path / "cache").exists()


def test_arguments_that_cannot_be_meant() -> None:
    with pytest.raises(UsageError, match="num_workers must be 0 or more"):
        ss.doctor(num_workers=-1)
    with pytest.raises(UsageError, match="batch_bytes must be a size"):
        ss.doctor(batch_bytes="much")


@pytest.mark.full
def test_limits_of_a_process_are_found_in_it() -> None:
    """One processor, few open files, SIMD off, too many threads: all at once, since each process takes seconds."""
    before = "import os, resource\nos.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
    before += "resource.setrlimit(resource.RLIMIT_NOFILE, (70, 70))"
    found = doctor_elsewhere(before, "--workers", "1", OMP_NUM_THREADS="4", JSIMD_FORCENONE="1")
    assert found["processors"].level == "warn"
    assert found["processors"].fact.startswith("1 of ")
    many = (os.cpu_count() or 1) > 1
    assert found["processors"].fix.startswith("taskset" if many else "ss.Loader(ds, num_workers=0)")
    assert level_and_fix(found["open files"])[0] == "fail"
    assert found["open files"].fix.startswith("ulimit -n 70 ")
    assert level_and_fix(found["threads"]) == ("warn", "export OMP_NUM_THREADS=1")
    assert level_and_fix(found["simplejpeg"]) == ("warn", "unset JSIMD_FORCENONE")


@pytest.mark.full  # it mounts
def test_a_small_dev_shm_is_found(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    mounted = "mount -t tmpfs -o size={} tmpfs /dev/shm && exec {}"
    program = f"{sys.executable} -m shardstream doctor --json --workers 8"
    for size, level in (("64m", "warn"), ("64k", "fail")):
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", mounted.format(size, program)], capture_output=True, text=True, timeout=120
        )
        if not done.stdout:
            pytest.skip(f"mounting is not allowed: {done.stderr.strip()}")
        (found,) = (one for one in json.loads(done.stdout)["findings"] if one["check"] == "/dev/shm")
        assert found["level"] == level
        assert "--shm-size=1g" in found["fix"]
        assert done.returncode == (1 if level == "fail" else 0)


# --------------------------------------------------------------------------------------------------------- packages


def distribution(folder: Path, name: str, version: str) -> None:
    made = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_packages_over_each_other_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("opencv-python", "opencv-contrib-python-headless", "Pillow-SIMD", "Pillow"):
        distribution(tmp_path, name, "9.5.0")
    monkeypatch.syspath_prepend(tmp_path)
    found = {one.check: one for one in packages.package_findings()}
    assert found["OpenCV"].level == "warn"
    assert found["OpenCV"].fix.startswith("pip uninstall -y opencv-python")
    assert found["OpenCV"].fix.endswith("pip install opencv-contrib-python-headless")
    assert "Pillow 9.5.0 and Pillow-SIMD 9.5.0 overwrite" in found["Pillow"].fact
    assert found["Pillow"].level == "warn"


def test_versions_that_are_too_old_or_missing() -> None:
    least = packages.floors()
    assert {"torch", "numpy", "Python"} <= set(least)
    assert packages.versions({"torch": "2.13.0+cpu", "numpy": "2.4.6"}, least, NEWEST).level == "ok"
    old = packages.versions({"torch": "1.13.1", "numpy": "2.4.6"}, least, NEWEST)
    assert level_and_fix(old) == ("fail", f'pip install "torch>={least["torch"]}"')
    gone = packages.versions({"torch": "2.13.0"}, least, NEWEST)
    assert level_and_fix(gone) == ("fail", f'pip install "numpy>={least["numpy"]}"')
    python = packages.versions({"torch": "2.13.0", "numpy": "2.4.6"}, least | {"Python": "9.1"}, NEWEST)
    assert level_and_fix(python) == ("fail", "use Python 9.1 or newer")
    broken = packages.versions({"torch": "2.13.0", "numpy": "2.4.6"}, least, NEWEST, "libgomp.so.1: cannot open")
    assert broken.level == "fail"
    assert "libgomp" in broken.fact
    newer = packages.versions({"torch": "99.1.0", "numpy": "2.4.6"}, least, NEWEST)
    assert level_and_fix(newer) == ("warn", "if something fails, take the newest tested: torch 2.14")
    patch = packages.versions({"torch": "2.14.99", "numpy": "2.4.6"}, least, NEWEST)
    assert patch.level == "ok"


def test_torch_that_cannot_be_imported_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: no such file\\nmore')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch")
    assert packages.broken_torch() == "libcudart.so.12: no such file"


def test_decoders_that_are_missing_or_slow() -> None:
    assert packages.pillow({}).level == "warn"
    assert packages.pillow({"Pillow-SIMD": "9.5.0.post2"}).level == "ok"
    assert level_and_fix(packages.jpeg(None)) == ("warn", install_command("images"))
    assert packages.built_with_simd([b"libjpeg-turbo version 3.1.2"]) is False
    assert packages.built_with_simd([b"no library of that name"]) is None
    slow = packages.jpeg(packages.JpegLibrary("1.9.0", simd=False, switched_off=False))
    assert slow.level == "warn"
    assert "no SIMD" in slow.fact
    assert level_and_fix(packages.numba(None)) == ("warn", install_command("pack"))


def test_the_installed_libjpeg_turbo_has_simd() -> None:
    pytest.importorskip("simplejpeg")
    found = packages.jpeg_library({})
    assert found is not None
    assert found.simd is True


# ------------------------------------------------------------------------------------------------------- processors


def test_a_quota_of_the_control_group_counts(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    quota = processor_quota(tmp_path)
    assert quota == 1.5
    assert cores_left(64, quota) == 1
    found = processors.processors(64, 64, quota, Workload(ranks=1, workers=1, batch_bytes=1))
    assert found.level == "warn"
    assert "1.5 by the quota" in found.fact
    assert "--cpus=8" in found.fix


@pytest.mark.parametrize(
    ("cores", "online", "work", "level", "fix"),
    [
        (16, 16, WORK, "ok", ""),
        (4, 4, WORK, "warn", 'ss.Loader(ds, num_workers="auto")'),
        (9, 9, Workload(2, 4, 1), "warn", 'ss.Loader(ds, num_workers="auto")'),
        (3, 3, Workload(2, 1, 1), "warn", "ss.Loader(ds, num_workers=0)"),
        (1, 1, Workload(1, 0, 1), "warn", "ss.Loader(ds, num_workers=0)"),
        (1, 8, Workload(1, 1, 1), "warn", "taskset -cp 0-7 $$   # under SLURM: srun --cpus-per-task=8"),
    ],
)
def test_cores_against_workers(cores: int, online: int, work: Workload, level: str, fix: str) -> None:
    assert level_and_fix(processors.processors(cores, online, None, work)) == (level, fix)


@pytest.mark.parametrize(
    ("setting", "affinity", "cores", "work", "level", "fix"),
    [
        (None, 8, 8, WORK, "ok", ""),
        (None, 64, 4, WORK, "warn", "export OMP_NUM_THREADS=4"),  # libraries see the cores, not the quota
        (None, 8, 8, Workload(4, 1, 1), "warn", "export OMP_NUM_THREADS=2"),
        ("1", 8, 8, WORK, "ok", ""),
        ("16", 16, 16, WORK, "warn", "export OMP_NUM_THREADS=2"),
        ("2,1", 16, 16, WORK, "ok", ""),
        ("many", 8, 8, WORK, "warn", "export OMP_NUM_THREADS=1"),
    ],
)
def test_threads_against_cores(
    setting: str | None, affinity: int, cores: int, work: Workload, level: str, fix: str
) -> None:
    assert level_and_fix(processors.threads(setting, affinity, cores, work)) == (level, fix)


def test_a_fork_beside_a_thread_is_found() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="somebody's thread")
    thread.start()
    try:
        beside = processors.other_threads()
        assert "somebody's thread" in beside
        found = processors.start_method("fork", beside)
    finally:
        ended.set()
        thread.join()
    assert level_and_fix(found) == ("warn", 'ss.Loader(ds, multiprocessing_context="forkserver")')
    assert processors.start_method("forkserver", beside).level == "ok"
    assert "somebody's thread" not in processors.other_threads()


# ------------------------------------------------------------------------------------------- memory and open files


def test_a_dev_shm_that_is_not_there_or_small() -> None:
    def found(folder: memory.SharedFolder | None) -> Finding:
        return memory.shared_memory(folder, WORK)

    assert memory.shared_folder(Path("/proc/no/such")) is None
    assert found(None).level == "fail"
    assert found(memory.SharedFolder(64 << 20, 64 << 20, writable=False)).level == "fail"
    assert found(memory.SharedFolder(64 << 20, 1000, writable=True)).level == "fail"
    small = found(memory.SharedFolder(64 << 20, 64 << 20, writable=True))
    assert small.level == "warn"
    assert "320.0 MB" in small.fact
    assert found(memory.SharedFolder(8 << 30, 8 << 30, writable=True)).level == "ok"


def test_memory_that_is_short() -> None:
    assert memory.memory(None, None, WORK).level == "ok"
    assert memory.memory(None, 64 << 30, WORK).level == "ok"
    group = memory.memory(1_500_000_000, 64 << 30, WORK)
    assert group.level == "warn"
    assert group.fix == "ss.Loader(ds, num_workers=4), or start the container with --memory=6g"
    assert memory.memory(100_000_000, 64 << 30, WORK).level == "fail"
    machine = memory.memory(None, 1_500_000_000, WORK)
    assert machine.fix == "ss.Loader(ds, num_workers=4)"
    assert (memory.available_memory() or 1) > 0


@pytest.mark.parametrize(("soft", "hard", "level"), [(1024, None, "ok"), (512, None, "warn"), (100, 4096, "fail")])
def test_open_files(soft: int, hard: int | None, level: str) -> None:
    found = memory.open_files(soft, hard, WORK)
    assert found.level == level
    if level != "ok":
        assert found.fix == "ulimit -n 1024"


def test_limits_of_this_process_are_read() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert memory.open_file_limits()[0] == (None if soft == resource.RLIM_INFINITY else soft)


# ------------------------------------------------------------------------------------------------------------ cache


@pytest.mark.full  # it mounts
def test_a_cache_on_a_full_disk_is_found(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    disk = tmp_path / "disk"
    disk.mkdir()
    steps = f"mount -t tmpfs -o size=1m tmpfs {disk} && head -c 900000 /dev/zero > {disk}/full"
    program = f"{sys.executable} -m shardstream doctor --json --cache {disk}/cache"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{steps} && exec {program}"], capture_output=True, text=True, timeout=120
    )
    if not done.stdout:
        pytest.skip(f"mounting is not allowed: {done.stderr.strip()}")
    (found,) = (one for one in json.loads(done.stdout)["findings"] if one["check"] == "cache")
    assert found["level"] == "fail"
    assert "nothing more is cached" in found["fact"]
    assert "df -h" in found["fix"]


@pytest.mark.parametrize(
    ("changes", "data", "level", "says"),
    [
        ({}, None, "ok", "5.0 GB free"),
        ({"kind": "nfs4"}, None, "warn", "no nearer than the store"),
        ({"kind": "fuse.s3fs"}, None, "warn", "no nearer than the store"),
        ({"kind": "overlay"}, None, "warn", "goes with it"),
        ({}, 9 * 10**9, "warn", "the rest streams"),
        ({"used": 5 * 10**9}, 9 * 10**9, "ok", "5.0 GB cached"),
        ({"room": 0}, None, "fail", "nothing more is cached"),
        ({"room": 0, "used": 10**9}, 9 * 10**9, "fail", "nothing more is cached"),
        ({"room": 0, "used": 9 * 10**9}, 9 * 10**9, "ok", "9.0 GB cached"),
        ({"problem": "cannot be written to"}, None, "fail", "cannot be written to"),
    ],
)
def test_where_a_cache_lies(changes: dict[str, Any], data: int | None, level: str, says: str) -> None:
    facts: dict[str, Any] = {"path": "/nvme/cache", "kind": "ext4", "room": 5 * 10**9}
    found = caching.cache(caching.CacheFolder(**(facts | changes)), data)
    assert found.level == level
    assert says in found.fact


def test_a_cache_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is not a folder" in caching.cache_folder(str(tmp_path / "file/cache")).problem
    assert caching.cache_folder(str(tmp_path / "file")).problem == "is not a folder"
    assert caching.cache_folder(str(tmp_path / "not/yet")).problem == ""


def test_what_a_cache_holds_is_counted(tmp_path: Path) -> None:
    url, cache = str(tmp_path / "out"), str(tmp_path / "cache")
    make_dataset(url, samples=20)
    assert caching.cache_folder(cache).used == 0
    found = {one.check: one for one in ss.doctor(url, cache=cache)}
    assert found["cache"].level in ("ok", "warn")
    assert " for " in found["cache"].fact
    assert found["store"].level == "ok"
    assert "dataset.json" in found["store"].fact


# ------------------------------------------------------------------------------------------------------------- GPUs

H200 = Gpus("580.95.05", (13, 0), ("NVIDIA H200",) * 2)


@pytest.mark.parametrize(
    ("build", "found", "more", "level", "says"),
    [
        (TorchBuild("2.13.0", "12.6"), H200, {}, "ok", "2 x NVIDIA H200"),
        (TorchBuild("2.13.0+cpu"), H200, {}, "fail", "without CUDA"),
        (TorchBuild("2.13.0", "13.0"), Gpus("535.1", (12, 2), ("A100",)), {}, "fail", "too old"),
        (TorchBuild("2.13.0", "12.6"), H200, {"visible": ""}, "warn", "hides all"),
        (TorchBuild("2.13.0", "12.6"), None, {"device_files": True}, "fail", "no driver answers"),
        (TorchBuild("2.13.0", "12.6"), None, {}, "ok", "none"),
        (TorchBuild("2.13.0", hip="6.4"), None, {}, "ok", "ROCm"),
    ],
)
def test_gpus(build: TorchBuild, found: Gpus | None, more: dict[str, Any], level: str, says: str) -> None:
    finding = gpus.gpu(build, found, **more)
    assert finding.level == level
    assert says in finding.fact


NVML = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned n) { strncpy(text, "535.1", n); return 0; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 12020; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) { *device = (void *)(0x700000000000 + i); return 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned n) {
    strncpy(text, (long)device & 1 ? "Second" : "First", n); return 0;
}
"""


def test_the_drivers_library_is_asked(tmp_path: Path) -> None:
    """By a library of the same functions, as NVIDIA's header declares them."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", tmp_path / "libnvidia-ml.so.1"],
        input=NVML,
        text=True,
        check=True,
    )
    program = "from shardstream.diagnose.doctor.gpus import driver_gpus; print(driver_gpus())"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == repr(Gpus("535.1", (12, 2), ("First", "Second"))), done.stderr


def test_locked_memory() -> None:
    assert gpus.locked_memory(None, 10**9, 8).level == "ok"
    assert gpus.locked_memory(64 << 10, 10**9, 0).level == "ok"
    assert gpus.locked_memory(64 << 10, 10**9, 8).level == "warn"
    assert gpus.locked_memory(10**10, 10**9, 8).level == "ok"


def test_numa_nodes(tmp_path: Path) -> None:
    for number, text in ((0, "0-3,8-9\n"), (1, "4-7\n")):
        folder = tmp_path / f"node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(text)
    nodes = gpus.node_processors(tmp_path / "node")
    assert nodes == {0: {0, 1, 2, 3, 8, 9}, 1: {4, 5, 6, 7}}
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x8086", "0x030000"), ("c", "0x10de", "0x040300")):
        folder = tmp_path / "pci" / name
        folder.mkdir(parents=True)
        for file, value in (("vendor", vendor), ("class", kind), ("numa_node", "1")):
            (folder / file).write_text(value + "\n")
    assert gpus.gpu_nodes(tmp_path / "pci") == {1}
    far = gpus.numa(nodes, {0, 1}, {1})
    assert far.level == "warn"
    assert far.fix.startswith("numactl --cpunodebind=1")
    assert gpus.numa(nodes, {0, 5}, {1}).level == "ok"
    assert gpus.numa(nodes, {0}, set()).level == "ok"
