"""Lightning: a training run whose data come from eight DataLoader workers."""
import logging
import os
import warnings

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
warnings.filterwarnings("ignore")
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

try:
    import lightning.pytorch as lightning
except ImportError:
    import pytorch_lightning as lightning

for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
    logging.getLogger(name).setLevel(logging.ERROR)


class Waves(Dataset):
    def __len__(self):
        return 1024

    def __getitem__(self, index):
        x = torch.sin(torch.arange(64) * (index % 37 + 1) / 20)
        return x, x.roll(1)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.mse_loss(self.layers(x), y)
        self.last = loss.detach()
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


if __name__ == "__main__":
    lightning.seed_everything(0)
    loader = DataLoader(Waves(), batch_size=32, num_workers=8, persistent_workers=True, pin_memory=True)
    model = Model()
    trainer = lightning.Trainer(max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, loader)
    print("steps", trainer.global_step, "loss", f"{model.last.item():.3g}")
