"""``eactl probe obr``: does restoring beat recomputing on this machine?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eactl.cli.options import output_options
from eactl.cli.probing import model_options

_EPILOG = """\b
Examples:
  eactl probe obr --model Qwen3-Coder-30B-A3B --tp 8 -o obr.json
  eactl probe obr --model Qwen3-Coder-30B-A3B --tp 8 --url http://127.0.0.1:8000 --concurrency 8
  eactl probe obr --gpu H20 --model Qwen3-Coder-30B-A3B --tp 8 --bandwidth 26.6
  eactl probe obr --kv-bytes-per-token 524288 --bandwidth 20GB/s --us-per-token 44000tok/s --tokens 3000
  eactl probe obr --from-logs lmcache.log --us-per-token 9.1 --model Qwen2.5-Coder-32B --tp 8
"""


@click.command(epilog=_EPILOG)
@model_options
@click.option("--tokens", metavar="N,N...", help="Prefix lengths to show (default: 256 to 65,536).")
@click.option("--bandwidth", metavar="RATE[,RATE...]",
              help="Host-to-device rate instead of measuring: 26.6 (GiB/s), 57GB/s, or one per rank.")  # fmt: skip
@click.option("--d2h-bandwidth", metavar="RATE", help="Device-to-host rate (default: measured, or the same).")
@click.option("--overhead-us", type=float, metavar="US", help="Fixed cost of a restore (default: measured, or 0).")
@click.option("--us-per-token", metavar="COST", help="Prefill cost instead of measuring: 5.6 (µs), or 7009tok/s.")
@click.option("--loaded-us-per-token", metavar="COST", help="Prefill cost under load; both verdicts are shown.")
@click.option("--end-to-end", metavar="COLD,HIT",
              help="Seconds of a whole request without and with a tier hit; they overrule the ratio.")  # fmt: skip
@click.option("--from-logs", "logs", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
              help="Restore rates from LMCache's log, or from a saved /metrics page. Repeatable.")  # fmt: skip
@click.option("--method", metavar="NAME", help="How to find the prefill cost: layers, bound or server.")
@click.option("--url", metavar="URL", help="Running vLLM to measure prefill on (method server).")
@click.option("--concurrency", type=click.IntRange(1, 1024), default=1, show_default=True, metavar="N",
              help="Server: also measure beside N-1 decoding requests.")  # fmt: skip
@click.option("--active-params", metavar="N", help="Bound: parameters a token passes through, for example 3.3B.")
@click.option("--gpu", metavar="NAME", help="Datasheet peaks of this GPU; nothing is measured then.")
@click.option("--peak-tflops", type=float, metavar="T", help="Peak dense BF16 TFLOP/s of one GPU.")
@click.option("--link", metavar="RATE", help="Peak host-link rate of one GPU, for example 64GB/s.")
@click.option("--agents", type=click.IntRange(min=1), metavar="A", help="Active tasks, for γG and γH.")
@click.option("--mean-prompt-tokens", type=float, metavar="N", help="Mean prompt length of the workload.")
@click.option("--gpu-kv-tokens", type=click.IntRange(min=1), metavar="K_G", help="Tokens of the GPU's KV cache.")
@click.option("--host-gib", metavar="SIZE", help="Host tier per rank, for γH.")
@click.option("--chunk-tokens", type=click.IntRange(1, 1 << 20), default=256, show_default=True,
              help="Tokens per chunk of the tier; copies are also timed in this pattern.")  # fmt: skip
@click.option("--numa", type=click.Choice(["local", "all", "off"]), default="local", show_default=True,
              help="Host memory on the GPU's node, on every node in turn, or unplaced.")  # fmt: skip
@click.option("--device", default="auto", show_default=True, help="auto, cuda or cpu.")
@click.option("--quick", is_flag=True, help="Within 15 seconds, with wider bands.")
@click.option("--fail-under", type=float, metavar="OBR", help="Exit 1 if OBR at the reference length is below this.")
@output_options
def obr(**options: Any) -> None:
    """Does restoring KV from host memory beat recomputing it here, from which length, and what would change that?

    The offload benefit ratio OBR(n) = 1 - T_load/T_recompute: 1 is a free restore, 0 no saving, negative a loss.
    Whatever is not given is measured on this machine; with all of it given, nothing is and no torch is needed. The
    result of -o feeds --obr of other commands.
    """
    from eactl.cli.probe_obr_options import obr_settings
    from eactl.cli.probing import carry_out
    from eactl.errors import CheckFailedError
    from eactl.report.probe_obr import obr_text
    from eactl_probes.obr import ObrFindings, gather
    from eactl_probes.obr_document import obr_fields

    settings = obr_settings(options)
    findings = ObrFindings()
    document = carry_out(
        "obr", lambda progress: gather(settings, findings, progress),
        lambda status: obr_fields(settings, findings, status), obr_text, is_empty=lambda: findings.empty,
        as_json=options["as_json"], output=options["output"], force=options["force"],
    )  # fmt: skip
    threshold, result = options["fail_under"], findings.result
    if threshold is not None and result is not None:
        value = result.obr(document["reference_tokens"])
        if value < threshold:
            raise CheckFailedError(
                f"OBR {value:.2f} is below {threshold:g}", where="--fail-under", hint="see the advice above"
            )
