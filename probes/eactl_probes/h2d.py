"""``probe h2d``: how fast KV comes back from host memory, per device, all at once, and from which NUMA node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from eactl import hostinfo
from eactl.errors import CannotRunHereError, UsageError
from eactl.model.link import LinkState
from eactl.units import GIB, KIB, MIB, human_bytes
from eactl_probes.copying import Copier, CpuCopier, CudaCopier, observed_node, time_copies
from eactl_probes.gpu import GpuFacts, Nvml, gpus_of_torch, nvml_session
from eactl_probes.h2d_buffers import Placement, buffers, buffers_for_all
from eactl_probes.h2d_series import (
    Buffers,
    Direction,
    Pattern,
    RankRate,
    Series,
    SeriesPoint,
    measure_pattern,
    measure_series,
    measure_together,
    time_nothing,
)
from eactl_probes.notices import Notices, ignore_progress
from eactl_probes.sampling import Budget, Effort, Samples
from eactl_probes.torch_env import choose_device, device_faults, environment

SIZES = (64 * KIB, 256 * KIB, 1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1 * GIB)
QUICK_SIZES = SIZES[:-2]
_NUMA_SIZES = (16 * MIB, 64 * MIB, 256 * MIB)
_TOGETHER_BYTES = 256 * MIB

Numa = Literal["local", "all", "off"]


@dataclass(frozen=True, slots=True)
class TierShape:
    """How the tier cuts KV: bytes of one chunk on this rank, and the layers it is made of (None: not known)."""

    chunk_bytes: int
    layers: int | None = None


@dataclass(frozen=True, slots=True)
class H2dSettings:
    """What to measure, and how long it may take."""

    device: str = "auto"
    sizes: tuple[int, ...] = SIZES
    tier: TierShape | None = None
    numa: Numa = "local"
    ranks: int | None = None
    budget_s: float = 40.0
    least_samples: int = 5

    def __post_init__(self) -> None:
        if len(set(self.sizes)) < 2 or min(self.sizes) < 1:
            raise UsageError("at least two different sizes are needed", where="--sizes", hint="for example 1MiB,64MiB")
        if self.ranks is not None and not 1 <= self.ranks <= 64:
            raise UsageError(f"{self.ranks} ranks", where="--ranks", hint="give 1 to 64")


@dataclass(frozen=True, slots=True)
class NumaRate:
    """Host-to-device bytes/s of one GPU from memory on one node; ``observed_node`` is where the pages really were."""

    gpu: int | None
    node: int
    observed_node: int | None
    bytes_per_s: float
    points: tuple[SeriesPoint, ...] = ()


@dataclass
class H2dFindings:
    """Everything measured so far; grows while the probe runs, so that an interruption keeps it."""

    device: str = "cpu"
    series: list[Series] = field(default_factory=list)
    patterns: list[Pattern] = field(default_factory=list)
    together: list[RankRate] = field(default_factory=list)
    numa_rates: list[NumaRate] = field(default_factory=list)
    gpus: list[GpuFacts] = field(default_factory=list)
    links: dict[int, LinkState] = field(default_factory=dict)
    timer: Samples | None = None  # what the timing itself reports for no copy at all
    environment: dict[str, object] = field(default_factory=dict)
    notices: Notices = field(default_factory=Notices)

    @property
    def empty(self) -> bool:
        """Whether nothing worth keeping was measured yet."""
        return not any(series.points for series in self.series)


def measure_h2d(
    settings: H2dSettings, findings: H2dFindings, progress: Callable[[str], None] = ignore_progress
) -> None:
    """Fill ``findings``, which keep what was measured whatever happens.

    Raises CannotRunHereError without torch, a device or memory.
    """
    findings.device = choose_device(settings.device, findings.notices, "probe h2d")
    on_gpu = findings.device == "cuda"
    with device_faults("probe h2d"), nvml_session(findings.notices, expected=on_gpu) as nvml:
        if on_gpu:
            findings.gpus.extend(gpus_of_torch(nvml, findings.notices))
        findings.environment |= environment(findings.device)
        with _one_thread_per_rank(findings.device):
            _Run(settings, findings, nvml, progress).all()


@contextmanager
def _one_thread_per_rank(device: str) -> Iterator[None]:
    """On a CPU a copy is one thread's: waking others costs tens of microseconds and no rank restores that way."""
    import torch

    before = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Run:
    """One measurement from start to end: devices one by one, then all at once."""

    def __init__(
        self, settings: H2dSettings, findings: H2dFindings, nvml: Nvml | None, progress: Callable[[str], None]
    ) -> None:
        self.settings, self.findings, self.nvml, self.progress = settings, findings, nvml, progress
        self.notices = findings.notices
        self.budget = Budget(settings.budget_s)
        self.copiers: list[Copier] = (
            [CudaCopier(facts.index) for facts in findings.gpus] if findings.device == "cuda" else [CpuCopier()]
        )

    def all(self) -> None:
        """Measure everything the settings ask for, within the budget."""
        self.findings.timer = time_nothing(self.copiers[0])
        for position, copier in enumerate(self.copiers):
            last = len(self.copiers) + 1  # one share is kept for all ranks at once
            self._one_device(copier, Budget(self.budget.share(last - position)), thorough=position == 0)
        if self.settings.numa == "all":
            for copier in self.copiers:
                self._nodes(copier)
        self._together()

    def _one_device(self, copier: Copier, budget: Budget, *, thorough: bool) -> None:
        """Both directions as a tier would use them; on the first GPU pageable memory too, to show what it costs."""
        wanted = self._placement(copier)
        placements = [wanted, replace(wanted, pinned=False)] if wanted.pinned and thorough else [wanted]
        tier = self.settings.tier
        steps = 2 * len(placements) + (1 if tier else 0)
        for placement in placements:
            with buffers(copier, max(self.settings.sizes), placement, self.notices) as pair:
                sizes = fitting_sizes(self.settings.sizes, pair.host.numel())
                self._wake(copier, pair)
                for direction in _DIRECTIONS:
                    self._series(copier, pair, direction, placement, sizes, budget.share(steps))
                    steps -= 1
                if placement == wanted and tier:
                    self._patterns(copier, pair, tier, budget.share(steps))
                    steps -= 1
                if placement == wanted:
                    self._link_during_copies(copier, pair)

    def _wake(self, copier: Copier, pair: Buffers) -> None:
        """Keep a GPU's link busy until it has clocked up, which takes longer than the warm-up of a small copy."""
        if self.findings.device == "cuda":
            awake = Budget(0.3)
            size = min(64 * MIB, pair.host.numel())
            while awake.left_s > 0:
                time_copies(copier, [(pair.device[:size], pair.host[:size])])

    def _series(
        self,
        copier: Copier,
        pair: Buffers,
        direction: Direction,
        placement: Placement,
        sizes: list[int],
        seconds: float,
    ) -> None:
        memory = "pinned" if placement.pinned else "pageable"
        series = Series(copier.index, direction, memory, observed_node(pair.host))
        self.findings.series.append(series)
        effort = Effort(seconds / len(sizes), least=self.settings.least_samples, warm_ups=4)
        for point, following in zip(measure_series(copier, pair, series, sizes, effort), [*sizes[1:], 0], strict=False):
            self.progress(f"{_label(series)} {human_bytes(point.size_bytes)}")
            # Warm-ups and the verification are copies as well.
            needs = (effort.least + 3) * point.samples.median_s * following / point.size_bytes
            if needs > seconds and self.settings.sizes in (SIZES, QUICK_SIZES) and len(series.points) > 2:
                text = f"{_label(series)}: {human_bytes(following)} and more were left out: no time for them"
                hint = "measure again on a quiet machine, or choose the --sizes of probe h2d"
                self.notices.add("sizes-reduced", text, hint)
                break
        self._check(series)

    def _patterns(self, copier: Copier, buffers: Buffers, tier: TierShape, seconds: float) -> None:
        if tier.chunk_bytes > buffers.host.numel():
            self.notices.add(
                "chunk-too-large",
                f"one chunk is {human_bytes(tier.chunk_bytes)}, more than the buffer of "
                f"{human_bytes(buffers.host.numel())}: the chunk pattern was not measured",
                "use a smaller --chunk-tokens or a machine with more free memory",
            )
            return
        kinds = [("chunks", 1)]
        if tier.layers and tier.layers <= tier.chunk_bytes:
            kinds.append(("layer pieces", tier.layers))
        for name, pieces in kinds:
            self.progress(f"{name} of {human_bytes(tier.chunk_bytes // pieces)}")
            effort = Effort(seconds / len(kinds), least=self.settings.least_samples, most=50, warm_ups=2)
            self.findings.patterns.append(measure_pattern(copier, buffers, name, tier.chunk_bytes, pieces, effort))

    def _link_during_copies(self, copier: Copier, buffers: Buffers) -> None:
        """PCIe links clock down when idle: read generation and width while a long row of copies is running."""
        facts = next((gpu for gpu in self.findings.gpus if gpu.index == copier.index), None)
        if self.nvml is None or facts is None:
            return
        size = min(256 * MIB, buffers.host.numel())
        wait = copier.start([(buffers.device[:size], buffers.host[:size])] * 32)
        readings = [state for _ in range(20) if (state := self.nvml.link_now(facts.uuid)) is not None]
        wait()
        if readings and copier.index is not None:
            self.findings.links[copier.index] = max(readings, key=lambda state: (state.gen, state.width))

    def _nodes(self, copier: Copier) -> None:
        """The host-to-device rate from every node that has memory, the wrong ones too."""
        # A GPU with coherent memory (GH200) lists that memory as a node of its own: it is not host memory.
        on_gpus = {gpu.memory_numa_node for gpu in self.findings.gpus}
        nodes = [node for node in hostinfo.numa_nodes() if node.total_bytes > 0 and node.index not in on_gpus]
        if len(nodes) < 2:
            self.notices.add("one-numa-node", "this machine has one NUMA node: there is no wrong one", "nothing to do")
        for node in nodes:
            placement = replace(self._placement(copier), node=node.index)
            series = Series(copier.index, "h2d", "pinned" if placement.pinned else "pageable", node.index)
            try:
                with buffers(copier, max(_NUMA_SIZES), placement, self.notices) as pair:
                    where = observed_node(pair.host)
                    sizes = fitting_sizes(_NUMA_SIZES, pair.host.numel())
                    for _ in measure_series(copier, pair, series, sizes, Effort(0.2, least=3, most=20)):
                        self.progress(f"NUMA node {node.index}")
            except CannotRunHereError as error:  # one full node is no reason to lose the others
                self.notices.add(
                    "numa-node-skipped", f"NUMA node {node.index} was not measured: {error.what}",
                    "free memory on it (eactl probe host)",
                )  # fmt: skip
                continue
            if (rate := series.bandwidth) is not None:
                self.findings.numa_rates.append(
                    NumaRate(copier.index, node.index, where, rate.value, tuple(series.points))
                )

    def _together(self) -> None:
        """All ranks at once, as they restore in production: on one link or socket they share, the slowest counts."""
        copiers = self.copiers
        if self.findings.device == "cpu":
            # More threads than processors would only measure their queue.
            ranks = min(self.settings.ranks or 2, hostinfo.usable_cpus())
            copiers = [CpuCopier(rank) for rank in range(ranks)]
        if len(copiers) < 2:
            return
        self.progress(f"{len(copiers)} ranks at once")
        placements = [self._placement(copier) for copier in copiers]
        with buffers_for_all(copiers, _TOGETHER_BYTES, placements, self.notices) as pairs:
            seconds = min(2.0, max(0.3, self.budget.left_s / 3))
            self.findings.together = measure_together(copiers, pairs, seconds)

    def _placement(self, copier: Copier) -> Placement:
        """What a tier should use: pinned where there is a device to pin for, on the device's own node."""
        return Placement(self.findings.device == "cuda", self._local_node(copier))

    def _local_node(self, copier: Copier) -> int | None:
        if self.settings.numa == "off":
            return None
        return next((gpu.numa_node for gpu in self.findings.gpus if gpu.index == copier.index), None)

    def _check(self, series: Series) -> None:
        if not series.verified:
            self.notices.add(
                "corrupt-copy", f"{_label(series)}: the copied bytes differ from the source",
                "do not trust this machine's results: check its memory and its GPU (dmesg, nvidia-smi -q)",
            )  # fmt: skip


_DIRECTIONS: tuple[Direction, ...] = ("h2d", "d2h")


def fitting_sizes(wanted: Sequence[int], room: int) -> list[int]:
    """The sizes up to ``room`` bytes, at least two; where larger ones were wanted, ``room`` itself is the largest."""
    sizes = {size for size in wanted if size <= room}
    if len(sizes) < len(wanted):
        sizes.add(room)
    if len(sizes) < 2:
        sizes.add(max(1, room // 16))
    return sorted(sizes)


def _label(series: Series) -> str:
    where = "memory" if series.gpu is None else f"GPU {series.gpu}"
    arrow = "host to device" if series.direction == "h2d" else "device to host"
    return f"{where}, {arrow}, {series.memory}"
