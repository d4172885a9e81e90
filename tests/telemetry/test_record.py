"""The record and the state file: what is written can be read, and nothing else can."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.telemetry.record import TierRecord
from eactl.telemetry.statefile import read_state, write_state

FULL = TierRecord(
    at_s=1000.5,
    policy="conditioned",
    age_s=0.5,
    chunk_tokens=256,
    registered_chunks=3,
    full_and_evicting=True,
    requests=2,
)


def test_a_record_survives_the_state_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tier.json"
    write_state(path, FULL)
    assert read_state(path) == FULL
    assert sorted(file.name for file in path.parent.iterdir()) == ["tier.json"]  # no part is left


def test_the_schema_comes_first_and_fields_of_a_later_version_are_left_out() -> None:
    document = json.loads(FULL.to_json())
    assert next(iter(document)) == "schema"
    assert TierRecord.from_dict({**document, "new_field": {"a": 1}}) == FULL


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no JSON"),
        ('{"schema": "eactl.tier/1", "at_s": 1', "holds no JSON"),
        ("\0\0\0", "holds no JSON"),
        ("[1]", "holds no JSON object"),
        ("[" * 100_000, "holds no JSON"),
        ("{}", "not an eactl.tier/1 object"),
        ('{"schema": "eactl.tier/1"}', "at_s and policy are missing"),
        ('{"schema": "eactl.tier/1", "at_s": 1, "policy": 3}', "field policy holds 3"),
        ('{"schema": "eactl.tier/1", "at_s": 1, "policy": "none", "requests": -1}', "field requests holds -1"),
        ('{"schema": "eactl.tier/1", "at_s": 1, "policy": "none", "requests": true}', "field requests holds True"),
        ('{"schema": "eactl.tier/1", "at_s": NaN, "policy": "none"}', "field at_s holds nan"),
        ('{"schema": "eactl.tier/1", "at_s": null, "policy": "none"}', "field at_s holds None"),
        ("x" * (2 << 20), "larger than a state file can be"),
    ],
)
def test_a_damaged_state_file_is_refused_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tier.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_state(path)


@given(
    st.dictionaries(
        st.sampled_from(sorted(TierRecord.__dataclass_fields__)),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    )
)
def test_any_object_is_either_a_record_that_can_be_written_again_or_refused(values: dict[str, object]) -> None:
    try:
        record = TierRecord.from_dict({"schema": "eactl.tier/1", **values})
    except ValueError:
        return
    assert TierRecord.from_dict(json.loads(record.to_json())) == record
    assert not any(isinstance(value, float) and not math.isfinite(value) for value in record.as_dict().values())
