"""``eactl tail``: a sample as a line for people or as a JSON object."""

from __future__ import annotations

import json
import time
from typing import Any

from eactl.telemetry.explain import advice, state_in_words
from eactl.telemetry.follow import Sample
from eactl.telemetry.record import SCHEMA, TierRecord
from eactl.units import human_bytes, human_count


def sample_json(sample: Sample) -> str:
    """One line: the record's fields, then its state in words, rates per second and warnings."""
    return json.dumps(sample_object(sample), separators=(",", ":"), allow_nan=False)


def sample_object(sample: Sample) -> dict[str, Any]:
    """The object of one interval; every figure is null when the source could not be read."""
    reading = sample.reading
    if reading is None or reading.record is None:
        nothing = TierRecord(at_s=round(sample.at_s, 3), policy="unknown", source=sample.source).as_dict()
        text = sample.error or "it exports nothing that is known here"
        warning = {"code": "not-read", "text": text, "hint": "is the engine running, and is this its address?"}
        return {**nothing, "schema": SCHEMA, "warnings": [warning]}
    record = reading.record
    return {
        **record.as_dict(),
        "state": state_in_words(record),
        "restarted": sample.restarted,
        "gap_s": sample.gap_s,
        "per_second": {name: round(rate, 3) for name, rate in sample.rates.items()},
        "metrics": reading.metrics,
        "warnings": [*reading.warnings, *_missing(record), *advice(record)],
    }


def sample_text(sample: Sample, *, name_source: bool) -> list[str]:
    """The lines for people: one for the state, one for each warning that is new to the reader."""
    clock = time.strftime("%H:%M:%S", time.localtime(sample.at_s))
    head = f"{clock}  {sample.source}: " if name_source else f"{clock}  "
    reading = sample.reading
    if reading is None or reading.record is None:
        where = "" if name_source else f" from {sample.source}"
        return [f"{head}no report{where}: {sample.error or 'nothing known is exported'}"]
    record = reading.record
    lines = []
    if sample.restarted:
        lines.append(f"{head}the engine was restarted: counters begin again")
    elif sample.gap_s is not None:
        lines.append(f"{head}back after {sample.gap_s:.0f} s without a report")
    parts = [part for part in (_pool(record), _tier(record), _flow(sample, record), _skips(record)) if part]
    lines.append(head + " | ".join([*parts, state_in_words(record)]))
    return lines


def warning_lines(sample: Sample) -> dict[str, str]:
    """Code -> one line for people, for the warnings of a sample."""
    reading = sample.reading
    if reading is None or reading.record is None:
        return {}
    entries = [*reading.warnings, *advice(reading.record)]
    return {entry["code"]: f"          {_sentence(entry['text'])} {_sentence(entry['hint'])}" for entry in entries}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _missing(record: TierRecord) -> list[dict[str, str]]:
    names = [name for name, value in record.as_dict().items() if value is None]
    if not names:
        return []
    hint = "they come with eactl's connector (eactl serve); null is not 0"
    return [{"code": "not-exported", "text": f"not exported here: {', '.join(names)}", "hint": hint}]


def _pool(record: TierRecord) -> str:
    if record.agents is None:
        return ""
    return f"{record.agents} agents × {human_count(record.mean_prompt_tokens or 0)} tokens"


def _tier(record: TierRecord) -> str:
    if record.registered_chunks is None or not record.host_bytes:
        return ""
    age = f", {record.age_s:.0f} s old" if record.age_s is not None and record.age_s >= 2 else ""
    return (
        f"tier {record.registered_chunks:,}/{record.capacity_chunks:,} chunks of {human_bytes(record.host_bytes)}{age}"
    )


def _flow(sample: Sample, record: TierRecord) -> str:
    names = (("gpu_hit_tokens", "GPU"), ("restored_tokens", "host"), ("computed_tokens", "computed"),
             ("stored_tokens", "stored"))  # fmt: skip
    if sample.rates:
        found = [f"{text} {human_count(sample.rates[name])}" for name, text in names if name in sample.rates]
        text = "tokens/s: " + ", ".join(found) if found else ""
        if sample.rates.get("preemptions"):
            text += f", {sample.rates['preemptions']:.1f} preemptions/s"
        return text
    found = [f"{text} {human_count(value)}" for name, text in names if (value := getattr(record, name)) is not None]
    parts = ["tokens: " + ", ".join(found)] if found else []
    if record.preemptions:
        again = ""
        if record.mean_prompt_tokens:
            again = f" (about {human_count(record.preemptions * record.mean_prompt_tokens)} tokens to have again)"
        parts.append(f"{record.preemptions:,} preemptions{again}")
    return ", ".join(parts)


def _skips(record: TierRecord) -> str:
    if not record.requests:
        return ""
    text = f"declined {record.skipped_requests or 0:,} of {record.requests:,}"
    if record.skipped_chunks and record.chunk_tokens and record.tier_bytes_per_token:
        spared = record.skipped_chunks * record.chunk_tokens * record.tier_bytes_per_token
        text += f" ({human_bytes(spared)} not written)"
    return text
