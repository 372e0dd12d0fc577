"""Golden values of recent mechanisms, from the code of their authors or reference implementations.

PyTorch 2.15.0, seed 20261119. With the packages flash-linear-attention 0.6.0, transformers 5.23.0 and
safetensors beside it, from the repository's root:

    python3 crates/conformance/golden/recent.py

writes recent.safetensors beside this file. Tensors are [batch, heads, seq, width]. The functions of
flash-linear-attention compute in float32, so results have its rounding errors.
"""

import pathlib

import torch
import torch.nn.functional as F
from fla.ops.based.naive import naive_parallel_based
from fla.ops.delta_rule.naive import delta_rule_recurrence
from fla.ops.forgetting_attn.naive import naive_forgetting_attn
from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
from fla.ops.gla.naive import naive_recurrent_gla
from fla.ops.kda.naive import naive_recurrent_kda
from fla.ops.simple_gla.naive import naive_recurrent_simple_gla
from safetensors.torch import save_file
from transformers.models.diffllama import modeling_diffllama
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.nystromformer import NystromformerConfig
from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention
from transformers.models.t5.modeling_t5 import T5Attention

SEED = 20261119
BATCH, HEADS, SEQ, D_HEAD = 1, 2, 70, 4
LANDMARKS = 7


def swap(*tensors):
    """Between [batch, heads, seq, ..] and [batch, seq, heads, ..], in which most functions compute."""
    return [x.transpose(1, 2) for x in tensors]


def unit(x):
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def log_decay(*shape):
    return F.logsigmoid(torch.randn(*shape) + 1) / 8


def forgetting(query, key, value, log_decay):
    output = naive_forgetting_attn(*swap(query, key, value), log_decay[..., 0].transpose(1, 2))
    return swap(output[0] if isinstance(output, tuple) else output)[0]


def mamba2(query, key, value, log_decay, strength):
    inputs = swap(query, key, value * strength)
    gates = log_decay[..., 0].transpose(1, 2)
    return swap(naive_recurrent_simple_gla(*inputs, gates, scale=1.0)[0])[0]


def gla(query, key, value, log_decay):
    return swap(naive_recurrent_gla(*swap(query, key, value, log_decay))[0])[0]


def delta(query, key, value, strength):
    return delta_rule_recurrence(unit(query), unit(key), value, strength[..., 0])[0]


def gated_delta(query, key, value, log_decay, strength):
    inputs = swap(unit(query), unit(key), value)
    beta, gates = strength[..., 0].transpose(1, 2), log_decay[..., 0].transpose(1, 2)
    output = naive_recurrent_gated_delta_rule(*inputs, beta=beta, g=gates)
    return swap(output[0] if isinstance(output, tuple) else output)[0]


def kda(query, key, value, log_decay, strength):
    inputs = swap(unit(query), unit(key), value, log_decay)
    return swap(naive_recurrent_kda(*inputs, beta=strength[..., 0].transpose(1, 2))[0])[0]


def causal_mask():
    mask = torch.full([SEQ, SEQ], torch.finfo(torch.float32).min).triu(1)
    return mask[None, None]


def sink(query, key, value, sink):
    module = torch.nn.Module().eval()
    module.num_key_value_groups, module.sinks = 1, sink
    attend = modeling_gpt_oss.eager_attention_forward
    output, _ = attend(module, query, key, value, causal_mask(), scaling=D_HEAD**-0.5)
    return swap(output)[0]


def relative(query, key, value, table):
    position = torch.arange(SEQ)
    bucket = T5Attention._relative_position_bucket(
        position[None, :] - position[:, None], bidirectional=False, num_buckets=12, max_distance=40
    )
    bias = table[:, bucket][None] + causal_mask()
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)


def differential(query, key, value, vectors):
    """The formula of the paper, with the constant of DiffLlama's third layer."""
    a, b, c, d = vectors
    lambda_init = modeling_diffllama.lambda_init_fn(2)
    factor = torch.exp(torch.sum(a * b)) - torch.exp(torch.sum(c * d)) + lambda_init
    halves = zip(query.chunk(2, -1), key.chunk(2, -1))
    weights = [
        (q @ k.transpose(-2, -1) * (D_HEAD / 2) ** -0.5 + causal_mask()).softmax(-1) for q, k in halves
    ]
    return (weights[0] - factor * weights[1]) @ value


def based(query, key, value):
    return naive_parallel_based(query, key, value)


class Projected(torch.nn.Module):
    """A projection with this output."""

    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, _):
        return self.output


def nystrom(query, key, value):
    """Head by head, since the module divides all heads by the same sum of a column; in float64."""
    config = NystromformerConfig(
        hidden_size=D_HEAD,
        num_attention_heads=1,
        num_landmarks=LANDMARKS,
        segment_means_seq_len=SEQ,
        inv_coeff_init_option=False,
    )
    module = NystromformerSelfAttention(config).eval()
    module.conv_kernel_size = None
    heads = []
    for inputs in zip(*(x.double().unbind(1) for x in (query, key, value))):
        module.query, module.key, module.value = map(Projected, inputs)
        heads.append(module(inputs[0])[0])
    return torch.stack(heads, dim=1).float()


def main():
    torch.manual_seed(SEED)
    heads = [BATCH, HEADS, SEQ]
    strength = lambda: torch.rand(*heads, 1)
    cases = {
        "forgetting": (forgetting, {"log_decay": log_decay(*heads, 1)}),
        "mamba2": (mamba2, {"log_decay": log_decay(*heads, 1), "strength": strength()}),
        "gla": (gla, {"log_decay": log_decay(*heads, D_HEAD)}),
        "delta": (delta, {"strength": strength()}),
        "gated-delta": (gated_delta, {"log_decay": log_decay(*heads, 1), "strength": strength()}),
        "kda": (kda, {"log_decay": log_decay(*heads, D_HEAD), "strength": strength()}),
        "sink": (sink, {"sink": torch.randn(HEADS)}),
        "relative": (relative, {"table": torch.randn(HEADS, 12)}),
        "differential": (differential, {"vectors": 0.3 * torch.randn(4, D_HEAD // 2)}),
        "based": (based, {}),
        "nystrom": (nystrom, {}),
    }
    tensors = {}
    for name, (attend, parameters) in cases.items():
        inputs = {part: torch.randn(*heads, D_HEAD) for part in ("query", "key", "value")}
        inputs = {part: x.requires_grad_() for part, x in (inputs | parameters).items()}
        output = attend(*inputs.values())
        upstream = torch.randn_like(output)
        gradients = torch.autograd.grad((output * upstream).sum(), inputs.values())
        case = inputs | {"output": output, "upstream": upstream}
        case |= {f"d_{part}": gradient for part, gradient in zip(inputs, gradients)}
        tensors |= {f"{name}.{part}": x.detach().float().contiguous() for part, x in case.items()}
    path = pathlib.Path(__file__).with_suffix(".safetensors")
    metadata = {"cases": " ".join(cases), "torch": "2.15.0", "seed": str(SEED)}
    metadata["landmarks"] = str(LANDMARKS)
    metadata["lambda_init"] = str(modeling_diffllama.lambda_init_fn(2))
    save_file(tensors, path, metadata)


if __name__ == "__main__":
    main()
