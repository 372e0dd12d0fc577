"""Golden values of PyTorch's nn.MultiheadAttention.

PyTorch 2.9.1, seed 20171206. With the package safetensors beside it, from the repository's root:

    python3 crates/conformance/golden/multi_head.py

writes multi_head.safetensors beside this file. Weights and inputs are representable in float32;
results are computed in float64, so that they do not include PyTorch's rounding errors.
"""

import pathlib

import torch
from safetensors.torch import save_file

TORCH = "2.9.1"
SEED = 20171206
D_MODEL, HEADS, BATCH = 12, 3, 2


def randn(*shape):
    """Normal samples that are representable in float32, as float64."""
    return torch.randn(*shape, dtype=torch.float32).double()


def case(
    seq_q, seq_k=None, *, causal=False, padded=False, own_value=False, kdim=D_MODEL, vdim=D_MODEL, bias=True
):
    """A module with its inputs, outputs and gradients; self-attention without `seq_k`."""
    attention = torch.nn.MultiheadAttention(
        D_MODEL, HEADS, bias=bias, kdim=kdim, vdim=vdim, batch_first=True, dtype=torch.float64
    ).eval()
    with torch.no_grad():
        # PyTorch initialises biases with zero, which would not test them.
        for parameter in attention.parameters():
            parameter.copy_(0.5 * randn(*parameter.shape))

    inputs = {"query": randn(BATCH, seq_q, D_MODEL)}
    if seq_k is not None:
        inputs["key"] = randn(BATCH, seq_k, kdim)
        if own_value or vdim != kdim:
            inputs["value"] = randn(BATCH, seq_k, vdim)
    for tensor in inputs.values():
        tensor.requires_grad_(True)
    query = inputs["query"]
    key = inputs.get("key", query)
    value = inputs.get("value", key)

    masks = {}
    if causal:
        mask = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool)
        masks["attn_mask"] = mask.triu(1)
    if padded:
        # The last three keys of the first example, the second of the second.
        mask = torch.zeros(BATCH, key.shape[1], dtype=torch.bool)
        mask[0, -3:], mask[1, 1] = True, True
        masks["key_padding_mask"] = mask

    output, attention_weights = attention(query, key, value, average_attn_weights=False, **masks)
    output_grad = randn(*output.shape)
    (output * output_grad).sum().backward()

    weights = {f"weights.{name}": tensor.float() for name, tensor in attention.state_dict().items()}
    gradients = {f"d_{name}": tensor.grad for name, tensor in inputs.items()}
    inputs = {name: tensor.float() for name, tensor in inputs.items()}
    return {
        **weights,
        **inputs,
        **masks,
        "upstream": output_grad.float(),
        "output": output,
        "attention": attention_weights,
        **gradients,
    }


def main():
    assert torch.__version__.split("+")[0] == TORCH, torch.__version__
    torch.manual_seed(SEED)
    cases = {
        "self": case(5),
        "cross": case(4, 6),
        "own-value": case(4, 6, own_value=True),
        "causal": case(5, causal=True),
        "padded": case(4, 6, padded=True),
        "causal-padded": case(6, 6, causal=True, padded=True),
        "no-bias": case(5, bias=False),
        "other-sizes": case(4, 6, kdim=8, vdim=10),
    }
    # Fully masked queries are NaN in PyTorch and zero here: no case has one.
    for name, tensors in cases.items():
        assert not any(tensor.isnan().any() for tensor in tensors.values()), name
    tensors = {f"{name}.{key}": tensor for name, all in cases.items() for key, tensor in all.items()}
    path = pathlib.Path(__file__).with_suffix(".safetensors")
    metadata = {
        "torch": TORCH,
        "seed": str(SEED),
        "heads": str(HEADS),
        "cases": " ".join(cases),
        "script": pathlib.Path(__file__).name,
    }
    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(tensors, path, metadata)
    print(f"{path}: {path.stat().st_size} bytes")


main()
