"""Transformers: greedy decoding with a small Llama of random weights, eager attention and a cache of keys and values."""
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
                     num_key_value_heads=4, max_position_embeddings=128, attn_implementation="eager", bos_token_id=1, eos_token_id=None, pad_token_id=0)
model = LlamaForCausalLM(config).eval().to("cuda")
prompt = torch.arange(2, 18).repeat(2, 1).to("cuda")
with torch.no_grad():
    tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, do_sample=False)
    loss = model(tokens, labels=tokens).loss
print("tokens", tokens[0].tolist())
print("loss", f"{loss.item():.3g}")
