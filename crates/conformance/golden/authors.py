"""Golden values of mechanisms, from the code of their authors or the packages that implement them.

PyTorch 2.15.0, seed 20261120. With the packages fla-core 0.6.0, einops 0.8.2, linformer 0.2.3, dm-tree 0.1.10 and
safetensors beside it, and with three repositories of GitHub, which no package contains:

    OpenNLPLab/cosFormer         8e12da1  ->  cosFormer
    MoonshotAI/MoBA              61e456b  ->  MoBA
    apple/ml-sigmoid-attention   9273b49  ->  ml-sigmoid-attention

From the repository's root:

    PYTHONPATH=cosFormer:MoBA/moba:ml-sigmoid-attention/attention_simulator/src \
        python3 crates/conformance/golden/authors.py

writes authors.safetensors beside this file. Tensors are [batch, heads, seq, width]. A case is causal if its
name ends with "/causal". The code of MoBA and of flash-linear-attention computes in float32, so its results
have rounding errors; the others compute in float64.
"""

import math
import pathlib

import fla.ops.lightning_attn.chunk as lightning_chunk
import torch
from attention_simulator.layers.activations import unnormalized_sigmoid_attention
from attention_simulator.layers.attention import Attention as SigmoidAttention
from cosformer import CosformerAttention
from fla.ops.retention.naive import naive_retention
from fla.ops.simple_gla.naive import naive_recurrent_simple_gla
from linformer.linformer import LinformerSelfAttention
from moba_naive import moba_attn_varlen_naive
from safetensors.torch import save_file

SEED = 20261120
BATCH, HEADS, SEQ, D_HEAD = 1, 3, 37, 6
RANK, LENGTH = 5, 41
BLOCK_SIZE, TOP_K = 4, 3
LAYER, LAYERS = 3, 12


class Projected(torch.nn.Module):
    """A projection with this output."""

    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, _):
        return self.output


def merge(x):
    """[batch, heads, seq, d_head] to [batch, seq, heads * d_head]."""
    return x.transpose(1, 2).flatten(2)


def split(x):
    return x.unflatten(2, (HEADS, D_HEAD)).transpose(1, 2)


def cosformer(causal):
    def attend(query, key, value):
        # [seq, batch, heads * d_head]
        inputs = [merge(x).transpose(0, 1) for x in (query, key, value)]
        module = CosformerAttention(HEADS * D_HEAD, HEADS, causal=causal, has_outproj=False)
        module.q_proj, module.k_proj, module.v_proj = map(Projected, inputs)
        return split(module(*inputs).transpose(0, 1))

    return attend


def linformer(query, key, value, projection):
    inputs = [merge(x) for x in (query, key, value)]
    module = LinformerSelfAttention(HEADS * D_HEAD, LENGTH, k=RANK, heads=HEADS)
    module.to_q, module.to_k, module.to_v = map(Projected, inputs)
    module.to_out = torch.nn.Identity()
    parameters = {"proj_k": projection[0].T, "proj_v": projection[1].T}
    return split(torch.func.functional_call(module, parameters, (inputs[0],)))


def moba(query, key, value):
    inputs = [x[0].transpose(0, 1) for x in (query, key, value)]  # [seq, heads, d_head]
    ends = torch.tensor([0, SEQ], dtype=torch.int32)
    return moba_attn_varlen_naive(*inputs, ends, SEQ, BLOCK_SIZE, TOP_K).transpose(0, 1)[None]


def sigmoid(causal):
    def attend(query, key, value):
        module = SigmoidAttention(
            HEADS * D_HEAD,
            unnormalized_sigmoid_attention,
            HEADS,
            attn_bias=-math.log(SEQ),
            masking_fn=lambda attn, mask: attn.masked_fill(~mask, -torch.inf),
        )
        projected = torch.stack([query, key, value]).permute(1, 3, 0, 2, 4).flatten(2)
        module.qkv, module.proj = Projected(projected), torch.nn.Identity()
        mask = torch.ones(SEQ, SEQ, dtype=torch.bool).tril() if causal else None
        return split(module(merge(query), mask)["attn_times_v"])

    return attend


def simple_gla(q, k, v, scale, g_gamma, **_):
    """In place of the kernel that flash-linear-attention calls with its decays."""
    return naive_recurrent_simple_gla(q, k, v, g_gamma.expand(q.shape[:3]), scale)


def lightning(query, key, value):
    lightning_chunk.chunk_simple_gla = simple_gla
    inputs = [x.transpose(1, 2) for x in (query, key, value)]
    return lightning_chunk.chunk_lightning_attn(*inputs, LAYER, LAYERS)[0].transpose(1, 2)


def main():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(SEED)
    cases = {
        "cosformer": (cosformer(False), {}),
        "cosformer/causal": (cosformer(True), {}),
        "linformer": (linformer, {"projection": torch.randn(2, RANK, LENGTH) / SEQ**0.5}),
        "moba/causal": (moba, {}),
        "sigmoid": (sigmoid(False), {}),
        "sigmoid/causal": (sigmoid(True), {}),
        "lightning/causal": (lightning, {}),
        "retention/causal": (naive_retention, {}),
    }
    tensors = {}
    for name, (attend, parameters) in cases.items():
        inputs = {part: torch.randn(BATCH, HEADS, SEQ, D_HEAD) for part in ("query", "key", "value")}
        # Representable in float32.
        inputs = {part: x.float().double().requires_grad_() for part, x in (inputs | parameters).items()}
        output = attend(*inputs.values())
        upstream = torch.randn_like(output).float().double()
        gradients = torch.autograd.grad((output * upstream).sum(), inputs.values())
        case = inputs | {"output": output, "upstream": upstream}
        case |= {f"d_{part}": gradient for part, gradient in zip(inputs, gradients)}
        tensors |= {f"{name}.{part}": x.detach().float().contiguous() for part, x in case.items()}
    path = pathlib.Path(__file__).with_suffix(".safetensors")
    metadata = {"cases": " ".join(cases), "torch": "2.15.0", "seed": str(SEED)}
    metadata |= {"block_size": str(BLOCK_SIZE), "top_k": str(TOP_K)}
    metadata |= {"rank": str(RANK), "length": str(LENGTH), "depth": str(LAYER / LAYERS)}
    save_file(tensors, path, metadata)


if __name__ == "__main__":
    main()
