"""From the options of ``probe obr`` to its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eactl.cli.probing import number, weigh
from eactl.errors import UsageError
from eactl.model.gpus import require_gpu
from eactl.units import parse_size_bytes
from eactl_probes.figures import parse_count, parse_pair, parse_prefill_s, parse_rates, parse_tokens
from eactl_probes.obr_settings import TOKENS, GivenFigures, GivenPeak, Load, ObrSettings
from eactl_probes.prefill import check_method


def obr_settings(options: Mapping[str, Any]) -> ObrSettings:
    """Every option checked. Raises UsageError."""
    name, config, weight = weigh(options["model"], options["tp"], options["kv_dtype"], options["kv_bytes_per_token"])
    method, active = options["method"], options["active_params"]
    return ObrSettings(
        bytes_per_token=weight,
        tp=options["tp"],
        model=name,
        config=config,
        kv_dtype=options["kv_dtype"],
        active_parameters=parse_count(active, where="--active-params") if active else None,
        given=_given(options),
        peak=_peak(options),
        load=Load(
            agents=options["agents"],
            mean_prompt_tokens=number(options["mean_prompt_tokens"], "--mean-prompt-tokens", low=1),
            gpu_kv_tokens=options["gpu_kv_tokens"],
            host_bytes=parse_size_bytes(options["host_gib"], where="--host-gib") if options["host_gib"] else None,
        ),
        tokens=parse_tokens(options["tokens"]) if options["tokens"] else TOKENS,
        logs=tuple(options["logs"]),
        method=check_method(method) if method else None,
        url=options["url"],
        concurrency=options["concurrency"],
        device=options["device"],
        chunk_tokens=options["chunk_tokens"],
        numa=options["numa"],
        quick=options["quick"],
    )


def _given(options: Mapping[str, Any]) -> GivenFigures:
    bandwidth, back = options["bandwidth"], options["d2h_bandwidth"]
    prefill, loaded = options["us_per_token"], options["loaded_us_per_token"]
    overhead = number(options["overhead_us"], "--overhead-us")
    return GivenFigures(
        bandwidths=parse_rates(bandwidth, where="--bandwidth") if bandwidth else (),
        d2h_bandwidth=min(parse_rates(back, where="--d2h-bandwidth")) if back else None,
        overhead_s=None if overhead is None else overhead * 1e-6,
        prefill_s=parse_prefill_s(prefill, where="--us-per-token") if prefill else None,
        loaded_prefill_s=parse_prefill_s(loaded, where="--loaded-us-per-token") if loaded else None,
        end_to_end_s=parse_pair(options["end_to_end"], where="--end-to-end") if options["end_to_end"] else None,
    )


def _peak(options: Mapping[str, Any]) -> GivenPeak:
    tflops = number(options["peak_tflops"], "--peak-tflops")
    if tflops == 0:
        raise UsageError("a peak of nothing", where="--peak-tflops", hint="give TFLOP/s, for example 148")
    sheet = GivenPeak.of(require_gpu(options["gpu"])) if options["gpu"] else GivenPeak()
    link = min(parse_rates(options["link"], where="--link")) if options["link"] else None
    return GivenPeak(
        flop_per_s=tflops * 1e12 if tflops else sheet.flop_per_s,
        link_bytes_per_s=link or sheet.link_bytes_per_s,
        name=sheet.name,
    )
