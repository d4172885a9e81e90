"""``eactl probe prefill``: what computing a prompt costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from eactl.cli.options import output_options
from eactl.errors import UsageError

if TYPE_CHECKING:
    from eactl.model.decoder import Decoder

_EPILOG = """\b
Examples:
  eactl probe prefill --model Qwen3-Coder-30B-A3B --tp 8
  eactl probe prefill --method bound --active-params 3.3B --peak-tflops 148 --tp 8
  eactl probe prefill --method server --url http://127.0.0.1:8000 --concurrency 8
  eactl probe prefill --model ./my-model --tokens 1024,4096,16384 --json
"""


@click.command(epilog=_EPILOG)
@click.option("--method", default=None, metavar="NAME",
              help="layers (default), bound, or server (default with --url).")  # fmt: skip
@click.option("--model", metavar="M", help="Model directory, config.json, cached or bundled model name.")
@click.option("--tp", type=click.IntRange(min=1), default=1, show_default=True, help="Tensor-parallel ranks.")
@click.option("--tokens", metavar="N,N...", help="Prompt lengths (default: by device, or by the server's context).")
@click.option("--active-params", metavar="N", help="Bound: parameters a token passes through, for example 3.3B.")
@click.option("--peak-tflops", type=float, metavar="T", help="Bound: matrix rate of one GPU instead of measuring it.")
@click.option("--gpu", metavar="NAME", help="Bound: the matrix rate of this GPU's datasheet.")
@click.option("--url", metavar="URL", help="Server: address of a running vLLM; its key goes into VLLM_API_KEY.")
@click.option("--concurrency", type=click.IntRange(1, 1024), default=1, show_default=True, metavar="N",
              help="Server: also measure beside N-1 decoding requests.")  # fmt: skip
@click.option("--device", default="auto", show_default=True, help="auto, cuda or cpu.")
@click.option("--quick", is_flag=True, help="Within 15 seconds, with shorter prompts.")
@output_options
def prefill(**options: Any) -> None:
    """Seconds of prefill per token: a bound, the model's layers timed here, or a running server's own figures.

    Times at several lengths are fitted by a fixed, a linear and a quadratic term; the last is attention.
    """
    from eactl.cli.probing import carry_out
    from eactl.report.probe_prefill import prefill_text
    from eactl_probes.figures import parse_count, parse_tokens
    from eactl_probes.prefill import PrefillFindings, check_method
    from eactl_probes.prefill_document import prefill_fields
    from eactl_probes.prefill_run import PrefillSettings, run_prefill

    method = check_method(options["method"] or ("server" if options["url"] else "layers"))
    if method == "server" and not options["url"]:
        raise UsageError("no server", where="--url", hint="give the address, for example http://127.0.0.1:8000")
    tokens = parse_tokens(options["tokens"]) if options["tokens"] else None
    active = parse_count(options["active_params"], where="--active-params") if options["active_params"] else None
    settings = PrefillSettings(
        method=method, decoder=_decoder(options), tp=options["tp"], tokens=tokens,
        active_parameters=active,
        flop_per_s=_flop_per_s(options), url=options["url"], concurrency=options["concurrency"],
        device=options["device"], quick=options["quick"], seconds=6.0 if options["quick"] else 40.0,
    )  # fmt: skip
    findings = PrefillFindings(method)
    carry_out(
        "prefill", lambda progress: run_prefill(settings, findings, progress),
        lambda status: prefill_fields(findings, status, tokens or ()), prefill_text, is_empty=lambda: findings.empty,
        as_json=options["as_json"], output=options["output"], force=options["force"],
    )  # fmt: skip


def _decoder(options: Mapping[str, Any]) -> Decoder | None:
    """The model's matrices where a model is given; a server knows its own."""
    if options["model"] is None or options["url"]:
        return None
    from eactl.configs import resolve_model
    from eactl.configs.feedforward import complete_config
    from eactl_probes.prefill_run import decoder_on

    resolved = resolve_model(options["model"])
    return decoder_on(complete_config(resolved), options["tp"], model=resolved.name)


def _flop_per_s(options: Mapping[str, Any]) -> float | None:
    from eactl.cli.probing import number
    from eactl.model.gpus import require_gpu

    tflops = number(options["peak_tflops"], "--peak-tflops", low=1e-6)
    if tflops is not None:
        return tflops * 1e12
    return require_gpu(options["gpu"]).bf16_tflops * 1e12 if options["gpu"] else None
