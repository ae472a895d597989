"""PyTorch Geometric: a graph convolution network trained on a random graph."""
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_mean_pool

torch.manual_seed(0)
edges = torch.randint(0, 500, (2, 4000))
data = Data(x=torch.randn(500, 32), edge_index=edges, y=torch.randint(0, 7, (500,))).to("cuda")


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(32, 64), GCNConv(64, 7)

    def forward(self, data):
        return self.second(self.first(data.x, data.edge_index).relu(), data.edge_index)


network = Network().to("cuda")
optimizer = torch.optim.SGD(network.parameters(), 0.05)
for _ in range(10):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(network(data), data.y)
    loss.backward()
    optimizer.step()
pooled = global_mean_pool(network(data), torch.zeros(500, dtype=torch.long, device=data.x.device))
# Sums by atomic additions differ from run to run in the last bits.
print("loss", f"{loss.item():.3g}", "pooled", tuple(pooled.shape))
