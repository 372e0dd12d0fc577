"""What PyTorch's nn.MultiheadAttention computes, as golden values.

PyTorch 2.9.1, seed 20171206. With the package safetensors beside it, from the repository's root:

    python3 crates/conformance/golden/multi_head.py

writes multi_head.safetensors beside this file. Weights and inputs are float32 numbers;
everything is computed from them in float64, so that PyTorch's rounding is not part of
what others are held against.
"""

import pathlib

import torch
from safetensors.torch import save_file

TORCH = "2.9.1"
SEED = 20171206
D_MODEL, HEADS, BATCH = 12, 3, 2


def drawn(*shape):
    """Normal numbers that float32 holds, as float64."""
    return torch.randn(*shape, dtype=torch.float32).double()


def case(
    seq_q, seq_k=None, *, causal=False, padded=False, own_value=False, kdim=D_MODEL, vdim=D_MODEL, bias=True
):
    """One module, its inputs, and what comes out; without `seq_k` it attends to itself."""
    attention = torch.nn.MultiheadAttention(
        D_MODEL, HEADS, bias=bias, kdim=kdim, vdim=vdim, batch_first=True, dtype=torch.float64
    ).eval()
    with torch.no_grad():
        # All of them: PyTorch begins with biases of zero, which would prove nothing.
        for parameter in attention.parameters():
            parameter.copy_(0.5 * drawn(*parameter.shape))

    inputs = {"query": drawn(BATCH, seq_q, D_MODEL)}
    if seq_k is not None:
        inputs["key"] = drawn(BATCH, seq_k, kdim)
        if own_value or vdim != kdim:
            inputs["value"] = drawn(BATCH, seq_k, vdim)
    for tensor in inputs.values():
        tensor.requires_grad_(True)
    query = inputs["query"]
    key = inputs.get("key", query)
    value = inputs.get("value", key)

    masks = {}
    if causal:
        hidden = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool)
        masks["attn_mask"] = hidden.triu(1)
    if padded:
        # The last three keys of the first example, the second of the second.
        hidden = torch.zeros(BATCH, key.shape[1], dtype=torch.bool)
        hidden[0, -3:], hidden[1, 1] = True, True
        masks["key_padding_mask"] = hidden

    output, attended = attention(query, key, value, average_attn_weights=False, **masks)
    upstream = drawn(*output.shape)
    (output * upstream).sum().backward()

    weights = {f"weights.{name}": tensor.float() for name, tensor in attention.state_dict().items()}
    gradients = {f"d_{name}": tensor.grad for name, tensor in inputs.items()}
    given = {name: tensor.float() for name, tensor in inputs.items()}
    return {
        **weights,
        **given,
        **masks,
        "upstream": upstream.float(),
        "output": output,
        "attention": attended,
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
    # A query that sees nothing is NaN in PyTorch, and zero here: no case has one.
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
