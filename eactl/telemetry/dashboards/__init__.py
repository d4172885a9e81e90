"""A Grafana dashboard and Prometheus alert rules for the exported metrics."""

from __future__ import annotations

from importlib.resources import files

FILES = {"grafana": "grafana.json", "alerts": "alerts.yaml"}


def dashboard_text(name: str) -> str:
    """The text of one of FILES."""
    return (files(__name__) / FILES[name]).read_text(encoding="utf-8")
