"""An actor that reserves a CPU and, on GPUs, a GPU of a Ray cluster for the run's own process, which is no actor."""

import os


class Holder:
    """Reserves the CPU and the GPU that rank 0 of the learner, the run's own process, uses."""

    def card(self) -> int:
        """The number of the GPU that Ray gave to this actor; 0 without GPUs."""
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
        return int(first) if first.isdigit() else 0
