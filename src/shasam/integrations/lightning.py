"""A callback for Lightning that tells a ``MiningBatchSampler`` the embeddings of every step.

It derives from the ``Callback`` of ``lightning`` or of ``pytorch_lightning``: the one that is
imported already, else the first that is installed. (``lightning_fabric`` has no such class.)
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from shasam.errors import InputError, MissingExtraError
from shasam.sampling import MiningBatchSampler

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _callback_class() -> Any:
    imported = [name for name in _PACKAGES if name in sys.modules]
    installed = [name for name in _PACKAGES if find_spec(name.split(".")[0]) is not None]
    for name in [*imported, *installed]:
        return importlib.import_module(name).Callback
    raise MissingExtraError(
        f"{__name__} needs lightning or pytorch-lightning: pip install pytorch-lightning",
        name="pytorch_lightning",
    )


class MiningCallback(_callback_class()):  # type: ignore[misc]
    """Feed the sampler from what ``training_step`` returns: a dict with loss, rows, embeddings.

    The state of the sampler goes into Lightning's checkpoints.
    """

    def __init__(
        self, sampler: MiningBatchSampler, rows: str = "rows", embeddings: str = "embeddings"
    ) -> None:
        super().__init__()
        self.sampler, self.rows, self.embeddings = sampler, rows, embeddings

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not isinstance(outputs, Mapping) or not {self.rows, self.embeddings} <= set(outputs):
            raise InputError(
                "MiningCallback needs training_step to return a dict with 'loss', "
                f"{self.rows!r} (rows of the training set) and {self.embeddings!r} (B, D)"
            )
        self.sampler.update(outputs[self.rows], outputs[self.embeddings])

    def state_dict(self) -> dict[str, Any]:
        return self.sampler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.sampler.load_state_dict(state_dict)
