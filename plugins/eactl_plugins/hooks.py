"""The scheduler's hooks that both connectors share: LMCache's part first, then ours, which must never raise."""

from __future__ import annotations

from typing import Any

from eactl_plugins.gate import AdmissionGate
from eactl_plugins.publisher import Publisher
from eactl_plugins.vllm_request import block_hashes
from eactl_plugins.vllm_steps import count_step


class GateHooks:
    """Goes before one of LMCache's connectors among the base classes; workers have no gate and only pass through.

    An exception in a hook would end the engine: it is counted, and the request is served as without us.
    """

    _gate: AdmissionGate | None
    _publisher: Publisher  # only beside a gate

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        super().update_state_after_alloc(request, blocks, num_external_tokens)  # type: ignore[misc]
        if self._gate is not None:
            try:
                self._gate.loading(request.request_id, num_external_tokens)
            except Exception:
                self._gate.fault("the allocation")

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        metadata = super().build_connector_meta(scheduler_output)  # type: ignore[misc]
        if self._gate is not None:
            try:
                count_step(self._gate, scheduler_output)
            except Exception:
                self._gate.fault("the step")
        return metadata

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        answer: tuple[bool, dict[str, Any] | None] = super().request_finished(request, block_ids)  # type: ignore[misc]
        if self._gate is not None:
            try:
                self._gate.finished(request.request_id, block_hashes(request))
            except Exception:
                self._gate.fault("the end of a request")
        return answer  # True also where nothing was stored: vLLM waits for the worker's word before it frees

    def shutdown(self) -> None:
        if self._gate is not None:
            self._publisher.close()
        super().shutdown()  # type: ignore[misc]
