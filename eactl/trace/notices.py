"""What a user must know about the files that were read, each kind of thing said once."""

from __future__ import annotations

from collections.abc import Iterable

from eactl.trace.call import Notice, Source

_NAMED = 3


def reading_notices(general: Iterable[Notice], sources: Iterable[Source]) -> list[Notice]:
    """All warnings of a reading: ``general`` ones, then those of files, the same one from many files only once."""
    files = list(sources)
    by_code: dict[tuple[str, str], list[tuple[Source, Notice]]] = {}
    for source in files:
        notices = list(source.warnings)
        if source.skipped and not any(notice.code == "lines-skipped" for notice in notices):
            notices.append(_skipped(source))
        for notice in notices:
            by_code.setdefault((notice.code, notice.hint), []).append((source, notice))
    found = list(general)
    for (code, hint), group in by_code.items():
        source, notice = group[0]
        named = len(files) == 1 or notice.text.startswith(f"{source.path}:")
        text = notice.text if named else f"{source.path}: {notice.text}"
        if len(group) > 1:
            text += f" ({len(group)} of {len(files)} files, also {_names(group[1:])})"
        found.append(Notice(code, text, hint))
    if len(files) > 1 and not any(source.has_times for source in files):
        found.append(
            Notice(
                "no-times",
                "the files hold no times: in recorded order they follow one another, as if one task ran at a time",
                "give --agents A for a closed loop with A task slots",
            )
        )
    elif len(files) > 1 and not all(source.common_clock for source in files):
        found.append(
            Notice(
                "no-common-clock",
                "the files' times count from their own starts: in recorded order they all begin together",
                "give --agents A for a closed loop with A task slots",
            )
        )
    return found


def inference_notices(sources: Iterable[Source]) -> list[Notice]:
    """Says so if tasks had to be inferred; to be asked when the calls have been read."""
    if all(source.tasks or not source.calls for source in sources):
        return []
    return [
        Notice(
            "tasks-inferred",
            "calls without a session id: one that extends an earlier prompt was taken to continue its task",
            "a trace with session ids tells them apart for certain",
        )
    ]


def _skipped(source: Source) -> Notice:
    lines = ", ".join(map(str, source.skipped_lines[:_NAMED]))
    more = ", ..." if source.skipped > _NAMED else ""
    return Notice(
        "lines-skipped", f"{source.skipped} bad lines left out (line {lines}{more})", "mend or re-record them"
    )


def _names(group: list[tuple[Source, Notice]]) -> str:
    names = ", ".join(source.path for source, _ in group[:_NAMED])
    return f"{names}, ..." if len(group) > _NAMED else names
