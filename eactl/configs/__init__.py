"""Turning ``--model SPEC`` into a model's configuration, without any network access."""

from eactl.configs.resolve import ResolvedModel, bundled_shapes, resolve_model

__all__ = ["ResolvedModel", "bundled_shapes", "resolve_model"]
