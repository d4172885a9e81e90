"""What to change for each cause, in words a person can act on."""

from __future__ import annotations

from eactl.condense.finding import TOO_LITTLE
from eactl.condense.result import Turn

_REMEDIES = {
    "changing-value": "Take the value out of the prompt's head: write it into the newest message, or read it by a tool "
    "call when it is needed; rounding it only makes the break rarer.",
    "tools-reordered": "Sort the tools by name before every request, and keep the list that the first request sent.",
    "tools-changed": "Send the full set of tools from the first request on and restrict their use in words or with "
    "tool_choice; tools stand at the head of the prompt, so a change there loses all of it.",
    "render-order": "Send the same messages in the same order at every turn; put what changes behind what stays.",
    "same-json": "Keep the raw string that the model wrote (or that was sent first) and send it back byte for byte; "
    "sorting keys at every turn is stable between turns but still differs from the generated text.",
    "reasoning-stripped": "Keep reasoning in the history: pass reasoning_content back and use the template's switch "
    "for it (preserve_thinking, clear_thinking=false), or turn thinking off for long tool loops.",
    "generation-prompt": "Render the turn as history the way it was rendered as generation prompt: use the template's "
    "switch that keeps the think block (preserve_thinking, clear_thinking=false) or a template without it.",
    "boundary-merge": "Send text back exactly as it was generated or first sent, white space and message boundaries "
    "included. On hybrid (state-space) models the loss is the whole saved state, not one block.",
    "sliding-window": "Cut in steps: let the history grow to 1.2 times the budget, then cut to 0.7 times; one "
    "re-prefill per step instead of one per turn.",
    "truncated": "Cut rarely and deeply, and keep the head (tools, system, first messages) byte for byte.",
    "masked": "Mask many results at once, when the saving pays for the re-prefill, instead of one per turn; or store a "
    "short result when it first enters the history.",
    "summary": "Summarise late and rarely, keep the head and reuse the same summary until the next one; make the "
    "summary call behind the agent's own prompt so that it shares the prefix.",
    "memory-block": "Move memory and environment state behind the stable text: into the newest user message or a tool "
    "result.",
    "attachment": "Send the same bytes (or the same URL) for an attachment at every turn; encode it once and keep the "
    "result.",
    "salt": "KV is never shared between salts, which is what a salt is for. Salt per tenant, not per request, and "
    "expect every salted tenant to hold a copy of the shared head.",
    "model-switch": "Stay on one model within a session; each switch computes the whole prompt again. Give a cheaper "
    "model tasks of its own.",
    "adapter-switch": "Keep a session on one adapter and route by adapter. With LMCache's multi-process server check "
    "first that its key holds the adapter (vLLM issue 44250): where it does not, hits are another adapter's KV.",
    "edited": "Append instead of editing: correct earlier text in a new message.",
    "unknown": "Compare the two requests at the place shown; if they are equal there, the cache lost the prefix "
    "(expiry, eviction, another replica).",
}  # fmt: skip

_BILLING = (
    "Turn the client's per-request header off: CLAUDE_CODE_ATTRIBUTION_HEADER=0 for Claude Code. vLLM drops it on the "
    "Anthropic route from the version with PR 36829 on, not on the OpenAI route."
)
_USAGE = (
    "Something at that token is written anew every turn (a date, an id, a memory block): compare two requests there "
    "and move it behind the stable text."
)
_SHORTENED = (
    "Prune, mask or summarise rarely and behind the stable head; a shorter prompt that loses its prefix costs more "
    "until the turns shown have passed. If nothing was cut on purpose, the cache lost the prefix (expiry, eviction, "
    "another replica)."
)
_APART = (
    "If two programs write under one session id (two agents, a user simulator, a side call), log each under an id of "
    "its own: then nothing breaks here. If it is one agent, compare the two requests at the place shown: a common head "
    "(system text, tools) in front would be kept."
)
_DAY = "Write the date into the first user message of the session and keep it, or read it by a tool."


def remedy(turn: Turn) -> str:
    """What to change for this break; empty where nothing broke."""
    if turn.kind.startswith("billing header"):
        return _BILLING
    if turn.kind == TOO_LITTLE:
        return _APART
    if turn.kind.startswith("prefix cut at token"):
        return _USAGE
    if turn.cause == "edited" and turn.where is not None and turn.where.message is None:
        return _SHORTENED
    if turn.cause == "changing-value" and "day granularity" in turn.kind:
        return _DAY
    return _REMEDIES.get(turn.cause, "")
