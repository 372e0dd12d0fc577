"""Golden values of native sparse attention, from the reference implementation of flash-linear-attention.

PyTorch 2.15.0, seed 20261119. With the packages fla-core 0.6.0, einops 0.8.2 and safetensors beside it, from
the repository's root:

    python3 crates/conformance/golden/native_sparse.py

writes native_sparse.safetensors beside this file. Tensors are [batch, heads, seq, width].

The compressed and the selected branch are functions of flash-linear-attention, and the window is that of
PyTorch. The blocks are selected here: flash-linear-attention always selects the first block and the one before
the query's own, and zoo-attention only the own one. The functions compute in float32, so results have its
rounding errors.
"""

import pathlib

import torch
import torch.nn.functional as F
from fla.ops.nsa.naive import naive_nsa_compression, naive_nsa_selection
from safetensors.torch import save_file

SEED = 20261119
BATCH, HEADS, KV_HEADS, SEQ, D_HEAD = 2, 4, 2, 70, 4
BLOCK_SIZE, TOP_K, WINDOW = 8, 3, 5


def swap(*tensors):
    """Between [batch, heads, seq, ..] and [batch, seq, heads, ..], in which the functions compute."""
    return [x.transpose(1, 2) for x in tensors]


def means(x):
    """Of complete blocks, [batch, kv_heads, blocks, width]."""
    blocks = SEQ // BLOCK_SIZE
    return x[:, :, : blocks * BLOCK_SIZE].unflatten(2, (blocks, BLOCK_SIZE)).mean(3)


def select(query, key_means):
    """[batch, kv_heads, seq, TOP_K]; -1 if there are fewer blocks."""
    indices = torch.full([BATCH, KV_HEADS, SEQ, TOP_K], -1)
    group = HEADS // KV_HEADS
    for example in range(BATCH):
        for head in range(KV_HEADS):
            queries = query[example, head * group : (head + 1) * group]
            scores = queries @ key_means[example, head].T * D_HEAD**-0.5  # [group, seq, blocks]
            for i in range(SEQ):
                own, complete = i // BLOCK_SIZE, (i + 1) // BLOCK_SIZE
                weights = scores[:, i, :complete].softmax(-1).sum(0)
                best = weights[:own].argsort(descending=True)[: TOP_K - 1]
                selected = [own, *best.tolist()]
                indices[example, head, i, : len(selected)] = torch.tensor(selected)
    return indices


def native_sparse(query, key, value, gates):
    key_means, value_means = means(key), means(value)
    compressed, _ = naive_nsa_compression(
        *swap(query, key_means, value_means), block_size=BLOCK_SIZE, scale=D_HEAD**-0.5
    )
    indices = select(query.detach(), key_means.detach()).transpose(1, 2)
    group = HEADS // KV_HEADS
    selected = naive_nsa_selection(*swap(query, key, value), indices, BLOCK_SIZE)
    distance = torch.arange(SEQ)[:, None] - torch.arange(SEQ)
    near = (distance >= 0) & (distance <= WINDOW)
    key, value = (x.repeat_interleave(group, 1) for x in (key, value))
    window = F.scaled_dot_product_attention(query, key, value, attn_mask=near)
    branches = [*swap(compressed, selected), window]
    return sum(gate * branch for gate, branch in zip(gates.split(1, dim=-1), branches))


def main():
    torch.manual_seed(SEED)
    inputs = {
        "query": torch.randn(BATCH, HEADS, SEQ, D_HEAD),
        "key": torch.randn(BATCH, KV_HEADS, SEQ, D_HEAD),
        "value": torch.randn(BATCH, KV_HEADS, SEQ, D_HEAD),
        "branch_gates": torch.rand(BATCH, HEADS, SEQ, 3),
    }
    inputs = {part: x.requires_grad_() for part, x in inputs.items()}
    output = native_sparse(*inputs.values())
    upstream = torch.randn_like(output)
    gradients = torch.autograd.grad((output * upstream).sum(), inputs.values())
    case = inputs | {"output": output, "upstream": upstream}
    case |= {f"d_{part}": gradient for part, gradient in zip(inputs, gradients)}
    tensors = {f"native-sparse.{part}": x.detach().contiguous() for part, x in case.items()}
    metadata = {"cases": "native-sparse", "torch": "2.15.0", "seed": str(SEED)}
    metadata |= {"block_size": str(BLOCK_SIZE), "top_k": str(TOP_K), "window": str(WINDOW)}
    save_file(tensors, pathlib.Path(__file__).with_suffix(".safetensors"), metadata)


if __name__ == "__main__":
    main()
