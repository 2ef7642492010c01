"""Trackers, which show the metrics of runs in other tools: TensorBoard, trackio, Weights & Biases, or your own."""

from agentrl.trackers.entry import Tracked, Tracker, TrackerFile
from agentrl.trackers.guarded import Trackers, check_packages, tracked_id

__all__ = [
    "Tracked",
    "Tracker",
    "TrackerFile",
    "Trackers",
    "check_packages",
    "tracked_id",
]
