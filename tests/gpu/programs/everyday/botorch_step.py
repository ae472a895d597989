"""BoTorch: a Gaussian process is fitted in double precision, and the next point to try is found by expected improvement."""
import os
import warnings

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
warnings.filterwarnings("ignore")
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood

torch.manual_seed(0)
device = torch.device("cuda")
x = torch.rand(16, 2, dtype=torch.float64).to(device)
y = torch.sin(5 * x[:, :1]) - (x - 0.4).square().sum(1, keepdim=True)
model = SingleTaskGP(x, y)
fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64).to(device)
candidate, value = optimize_acqf(LogExpectedImprovement(model, best_f=y.max()), bounds, q=1, num_restarts=2, raw_samples=16,
                                 options={"maxiter": 10, "seed": 0})
print("candidate", [f"{number:.2g}" for number in candidate[0].tolist()], "value", f"{value.item():.2g}")
