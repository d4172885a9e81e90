"""Traces of agent requests: reading every known format into one stream of calls, and writing them back."""

from eactl.trace.call import Call, Source
from eactl.trace.options import TraceOptions
from eactl.trace.stream import TraceStream, open_trace

__all__ = ["Call", "Source", "TraceOptions", "TraceStream", "open_trace"]
