"""The text of a message as it counts where no chat template says more."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

_BLOCK_CHARS = 1 << 11
# Around the digest of an attachment.
IMAGE_MARK = "\x00image\x00"


def part_text(part: Any) -> str:
    """The text of a message, of tools or of a plain stretch, as it counts where no template says more.

    Identifiers of messages and calls are left out: templates do not show them.
    """
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return orjson.dumps(part).decode()
    pieces: list[str] = [str(part.get("role"))]
    for key in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(part.get(key), str):
            pieces.append(part[key])
            break
    pieces.append(content_text(part.get("content")))
    calls = part.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            shown = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
            pieces.append(f"{function.get('name')}{shown}")
    legacy = part.get("function_call")
    if isinstance(legacy, dict):
        pieces.append(f"{legacy.get('name')}{legacy.get('arguments')}")
    return "\n".join(pieces)


def content_text(content: Any) -> str:
    """The text of a message content: texts and digests of attachments, a line each."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return orjson.dumps(content).decode()
    pieces: list[str] = []
    for part in content:
        if isinstance(part, str):
            pieces.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            pieces.append(part["text"])
        elif isinstance(part, dict) and is_attachment(part):
            pieces.append(f"{IMAGE_MARK}{attachment_digest(part)}{IMAGE_MARK}")
        else:
            pieces.append(orjson.dumps(part).decode())
    return "\n".join(pieces)


def is_attachment(part: dict[str, Any]) -> bool:
    """Whether a content part is an image, audio, video or file: its bytes, not a text, decide what can be reused."""
    kind = str(part.get("type"))
    return kind.startswith(("image", "input_image", "audio", "input_audio", "video", "file", "document", "input_file"))


def attachment_digest(part: dict[str, Any]) -> str:
    """What identifies an attachment: the recorded digest, else a digest of its description with its bytes."""
    recorded = part.get("digest") or part.get("sha256") or part.get("hash")
    if isinstance(recorded, str):
        return recorded
    return hashlib.blake2b(orjson.dumps(part), digest_size=16).hexdigest()


def text_blocks(text: str) -> list[str]:
    """A long text in blocks that end at a line end before a letter, so that an appended text keeps its blocks."""
    blocks: list[str] = []
    start = 0
    while len(text) - start > _BLOCK_CHARS:
        end = text.find("\n", start + _BLOCK_CHARS) + 1
        while end and end < len(text) and not text[end].isalnum():
            end = text.find("\n", end) + 1
        if not end or end >= len(text):
            break
        blocks.append(text[start:end])
        start = end
    if start < len(text):
        blocks.append(text[start:])
    return blocks
