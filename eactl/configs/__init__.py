"""Turning ``--model SPEC`` into a model's configuration, without any network access."""

from eactl.configs.resolve import ResolvedModel, resolve_model

__all__ = ["ResolvedModel", "resolve_model"]
