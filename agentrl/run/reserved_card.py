"""An actor that reserves a CPU of a Ray cluster, and a GPU if there are GPUs, for a process that is no actor."""

import os


class Holder:
    """Keeps the place of rank 0 of the learner, which is the run itself."""

    def card(self) -> int:
        """The number of the GPU that Ray gave to this actor; 0 without GPUs."""
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
        return int(first) if first.isdigit() else 0
