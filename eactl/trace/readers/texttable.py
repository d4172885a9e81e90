"""The readers of text logs, one module per format, in the order in which detection asks them."""

from __future__ import annotations

from eactl.trace.readers.anthropic import AnthropicReader
from eactl.trace.readers.atif import AtifReader
from eactl.trace.readers.chatjsonl import ChatJsonlReader
from eactl.trace.readers.claude_code import ClaudeCodeReader
from eactl.trace.readers.codex import CodexReader
from eactl.trace.readers.copilot import CopilotReader
from eactl.trace.readers.inspect_ai import InspectReader
from eactl.trace.readers.kimi import KimiReader
from eactl.trace.readers.langfuse import LangfuseReader
from eactl.trace.readers.lmcache_agent import LmcacheAgentReader
from eactl.trace.readers.nemo_gym import NemoGymReader
from eactl.trace.readers.openhands import OpenHandsReader
from eactl.trace.readers.openhands_events import OpenHandsEventsReader
from eactl.trace.readers.otel import OtelReader
from eactl.trace.readers.pi import PiReader
from eactl.trace.readers.serverlog import SglangLogReader, VllmLogReader
from eactl.trace.readers.swe_agent import MiniSweAgentReader, SweAgentReader
from eactl.trace.readers.textbase import TextReader

TEXT_READERS: tuple[type[TextReader], ...] = (
    ClaudeCodeReader,
    PiReader,
    CodexReader,
    KimiReader,
    CopilotReader,
    LmcacheAgentReader,
    OpenHandsEventsReader,
    NemoGymReader,
    InspectReader,
    LangfuseReader,
    OtelReader,
    AtifReader,
    SweAgentReader,
    MiniSweAgentReader,
    OpenHandsReader,
    AnthropicReader,
    ChatJsonlReader,
    VllmLogReader,
    SglangLogReader,
)
