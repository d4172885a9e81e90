"""Seeded agent workloads: shared system prompts, growing histories, heavy-tailed gaps, sub-agents."""

from eactl.trace.synth.calls import synthesise
from eactl.trace.synth.draw import make_plan
from eactl.trace.synth.plan import Plan
from eactl.trace.synth.profiles import PROFILES, customised, profile_named
from eactl.trace.synth.settings import Published, SynthSettings
from eactl.trace.synth.summary import SynthResult, duration_s, summarise_plan

__all__ = [
    "PROFILES",
    "Plan",
    "Published",
    "SynthResult",
    "SynthSettings",
    "customised",
    "duration_s",
    "make_plan",
    "profile_named",
    "summarise_plan",
    "synthesise",
]
