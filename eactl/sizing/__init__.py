"""``eactl size``: from traces and a model to a curve, a recommendation and what to pass to LMCache."""

from eactl.sizing.result import SizeResult
from eactl.sizing.run import size_trace
from eactl.sizing.settings import SizeSettings, TokenWeight

__all__ = ["SizeResult", "SizeSettings", "TokenWeight", "size_trace"]
