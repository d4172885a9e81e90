"""The readers of text logs, one module per format, in the order in which detection asks them."""

from __future__ import annotations

from eactl.trace.readers.anthropic import AnthropicReader
from eactl.trace.readers.chatjsonl import ChatJsonlReader
from eactl.trace.readers.claude_code import ClaudeCodeReader
from eactl.trace.readers.openhands import OpenHandsReader
from eactl.trace.readers.textbase import TextReader

TEXT_READERS: tuple[type[TextReader], ...] = (
    ClaudeCodeReader,
    OpenHandsReader,
    AnthropicReader,
    ChatJsonlReader,
)
