from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from shasam.errors import InputError
from shasam.losses import flcmi, unit_length
from shasam.sampling import MiningBatchSampler, batch_triplets

pl = pytest.importorskip("pytorch_lightning", reason="needs pytorch-lightning")
from shasam.integrations.lightning import MiningCallback  # noqa: E402

N = 96


class Tiny(pl.LightningModule):
    def __init__(self, told: bool = True) -> None:
        super().__init__()
        self.net, self.told = torch.nn.Linear(6, 4), told

    def training_step(self, batch, number):
        rows, x, t, s = batch
        z = unit_length(self.net(x))
        parts = [flcmi(z, m.anchors, m.positives, m.negatives) for m in batch_triplets(t, s)]
        loss = torch.stack(parts).mean()
        return {"loss": loss, "rows": rows, "embeddings": z} if self.told else loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def fit(module: Tiny, sampler: MiningBatchSampler, x, t, s) -> pl.Trainer:
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[MiningCallback(sampler)],
    )  # fmt: skip
    loader = DataLoader(TensorDataset(torch.arange(N), x, t, s), batch_sampler=sampler)
    trainer.fit(module, loader)
    return trainer


@pytest.mark.filterwarnings("ignore")
def test_a_lightning_module_is_trained_on_mined_batches_and_its_checkpoint_keeps_the_sampler(
    tmp_path,
):
    x, t, s = torch.randn(N, 6), torch.arange(N) % 2, torch.arange(N) // 2 % 2
    sampler = MiningBatchSampler(t, s, batch_size=24, total_steps=8, mining={"start": 0.25})
    trainer = fit(Tiny(), sampler, x, t, s)
    assert sampler.step == 8 and int(sampler._seen_N.sum()) > N // 2
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    (state,) = torch.load(tmp_path / "last.ckpt", weights_only=True)["callbacks"].values()
    again = MiningBatchSampler(t, s, batch_size=24, total_steps=8)
    MiningCallback(again).load_state_dict(state)
    assert again.step == 8
    with pytest.raises(InputError, match="training_step to return a dict"):
        fit(Tiny(told=False), MiningBatchSampler(t, s, batch_size=24, total_steps=8), x, t, s)
