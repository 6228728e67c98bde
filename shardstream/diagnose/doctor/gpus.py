"""GPUs: whether torch can use them, locked memory, and which processors are near."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shardstream.diagnose.doctor.finding import Finding
from shardstream.diagnose.doctor.workload import Workload
from shardstream.sizes import plural, size

_NVIDIA = "0x10de"  # a vendor's number on the PCI bus
_DISPLAY = ("0x0300", "0x0302")  # the classes of graphics and of compute cards


@dataclass(frozen=True, slots=True)
class Gpus:
    """What NVIDIA's driver says.

    Attributes:
        driver: Its version.
        cuda: The newest CUDA that it runs, as (major, minor).
        names: Names of the GPUs.
    """

    driver: str
    cuda: tuple[int, int]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """What torch was built for.

    Attributes:
        version: Of torch.
        cuda: Of CUDA; empty without.
        hip: Of ROCm; empty without.
    """

    version: str
    cuda: str = ""
    hip: str = ""


def gpu_findings(work: Workload) -> Iterator[Finding]:
    """Look at the driver. Nothing is started on a GPU, so that this process may still be forked."""
    build, gpus = torch_build(), driver_gpus()
    if build is None:  # said by the check of versions
        return
    there = any(Path("/dev").glob("nvidia[0-9]*"))
    yield gpu(build, gpus, device_files=there, visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
    count = len(gpus.names) if gpus else 0
    yield locked_memory(locked_limit(), work.in_flight, count)
    yield numa(node_processors(), _own_processors(), gpu_nodes())


# --------------------------------------------------------------------------------------------------------------- facts


def torch_build() -> TorchBuild | None:
    """torch's, without asking for a GPU; ``None`` where torch cannot be imported."""
    try:
        import torch
    except (ImportError, OSError):
        return None
    return TorchBuild(torch.__version__, torch.version.cuda or "", torch.version.hip or "")


def driver_gpus() -> Gpus | None:
    """What the driver's library says of the GPUs of this machine; ``None`` without the library or its driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2():
            return None
    except (OSError, AttributeError):
        return None
    try:
        text, number = ctypes.create_string_buffer(96), ctypes.c_int()
        library.nvmlSystemGetDriverVersion(text, 96)
        driver = text.value.decode(errors="replace")
        library.nvmlSystemGetCudaDriverVersion(ctypes.byref(number))
        cuda = (number.value // 1000, number.value % 1000 // 10)
        library.nvmlDeviceGetCount_v2(ctypes.byref(number))
        names = []
        for index in range(number.value):
            device = ctypes.c_void_p()
            library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
            library.nvmlDeviceGetName(device, text, 96)
            names.append(text.value.decode(errors="replace"))
        return Gpus(driver, cuda, tuple(names))
    finally:
        library.nvmlShutdown()


def locked_limit() -> int | None:
    """Bytes of memory that this process may lock; ``None`` for no limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def node_processors(root: Path = Path("/sys/devices/system/node")) -> dict[int, set[int]]:
    """The processors of each NUMA node."""
    found = {}
    for folder in root.glob("node[0-9]*"):
        with suppress(OSError, ValueError):
            found[int(folder.name[4:])] = _numbers((folder / "cpulist").read_text())
    return found


def gpu_nodes(root: Path = Path("/sys/bus/pci/devices")) -> set[int]:
    """The NUMA nodes that NVIDIA's GPUs hang on."""
    found = set()
    for folder in root.glob("*"):
        with suppress(OSError, ValueError):
            if (folder / "vendor").read_text().strip() != _NVIDIA:
                continue
            if (folder / "class").read_text().strip().startswith(_DISPLAY):
                found.add(int((folder / "numa_node").read_text()))
    return found - {-1}  # where the machine does not say


def _numbers(text: str) -> set[int]:
    """``0-3,8`` as numbers."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _own_processors() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


# -------------------------------------------------------------------------------------------------------------- checks


def gpu(build: TorchBuild, gpus: Gpus | None, *, device_files: bool = False, visible: str | None = None) -> Finding:
    """Whether torch can use the GPUs that there are.

    Args:
        build: What torch was built for.
        gpus: What the driver says.
        device_files: Whether ``/dev`` has GPUs.
        visible: ``CUDA_VISIBLE_DEVICES``; ``None`` where it is not set.
    """
    if build.hip:
        return Finding(
            "GPU", "ok", f"torch {build.version} is built for ROCm {build.hip}; its driver was not looked at"
        )
    built = f"torch {build.version}" + (f" for CUDA {build.cuda}" if build.cuda else " without CUDA")
    if gpus is None or not gpus.names:
        if device_files:
            fix = "docker run --gpus all   # else: install NVIDIA's driver, and try nvidia-smi"
            return Finding("GPU", "fail", f"/dev has GPUs, but no driver answers; {built}", fix)
        return Finding("GPU", "ok", f"none; {built}")
    kinds = ", ".join(f"{gpus.names.count(name)} x {name}" for name in dict.fromkeys(gpus.names))
    fact = f"{kinds}, driver {gpus.driver} up to CUDA {gpus.cuda[0]}.{gpus.cuda[1]}; {built}"
    if not build.cuda:
        return Finding("GPU", "fail", fact, "pip uninstall -y torch && pip install torch   # a build with CUDA")
    match = re.match(r"\d+", build.cuda)
    if match and gpus.cuda[0] < int(match[0]):
        fix = f"update NVIDIA's driver, or install a torch built for CUDA {gpus.cuda[0]} (pytorch.org/get-started)"
        return Finding("GPU", "fail", f"{fact}: the driver is too old", fix)
    if visible is not None and visible.strip() in ("", "-1"):
        return Finding("GPU", "warn", f"{fact}; CUDA_VISIBLE_DEVICES hides all", "unset CUDA_VISIBLE_DEVICES")
    return Finding("GPU", "ok", fact)


def locked_memory(limit: int | None, needed: int, gpus: int) -> Finding:
    """Whether memory for fast networks may be locked (``ulimit -l``).

    Args:
        limit: Bytes that may be locked; ``None`` for no limit.
        needed: Bytes of the batches on their way.
        gpus: How many GPUs there are.
    """
    if limit is None:
        return Finding("pinned memory", "ok", "no limit (ulimit -l)")
    fact = f"{size(limit)} may be locked (ulimit -l)"
    if not gpus:
        return Finding("pinned memory", "ok", f"{fact}; without a GPU none is")
    if limit >= needed:
        return Finding("pinned memory", "ok", f"{fact}; batches take {size(needed)}")
    fix = "ulimit -l unlimited   # containers: docker run --ulimit memlock=-1"
    return Finding("pinned memory", "warn", f"{fact}; batches take {size(needed)}, and InfiniBand needs more", fix)


def numa(nodes: Mapping[int, set[int]], own: set[int], near: set[int] | Sequence[int]) -> Finding:
    """Whether this process runs near the GPUs.

    Args:
        nodes: The processors of each node.
        own: Processors that this process may run on.
        near: Nodes of the GPUs.
    """
    used = sorted(node for node, processors in nodes.items() if processors & own)
    if not used:
        return Finding("NUMA", "ok", "nothing to be seen of nodes")
    fact = f"processors of node {', '.join(map(str, used))} of {plural(len(nodes), 'node')}"
    if not near:
        return Finding("NUMA", "ok", fact)
    fact += f"; GPUs on node {', '.join(map(str, sorted(near)))}"
    if near and not set(near) & set(used):
        best = min(near)
        fix = f"numactl --cpunodebind={best} --preferred={best} python train.py"
        return Finding("NUMA", "warn", f"{fact}: every batch crosses over", fix)
    return Finding("NUMA", "ok", fact)
