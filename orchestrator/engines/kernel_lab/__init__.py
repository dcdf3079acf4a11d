"""The prefill attention path of MLA models itself, in torch, on CPU or GPU: chunks, workspaces and kernels without a
model around them.

``orchestrator.engines.kernel_lab.engine`` has the engine. What is imported here needs no torch.
"""

from orchestrator.engines.kernel_lab.args import CHUNK_ORDERS, LAYER_KINDS, LabArgs, lab_args
from orchestrator.engines.kernel_lab.errors import LabError

LAB_LIVE_KNOBS = ("chunk_order",)
"""Live knobs beside those that every engine has."""

__all__ = ["CHUNK_ORDERS", "LAB_LIVE_KNOBS", "LAYER_KINDS", "LabArgs", "LabError", "lab_args"]
