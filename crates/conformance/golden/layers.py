"""Golden values of layers, from the modules of transformers and flash-linear-attention.

PyTorch 2.15.0, seed 20261121. With the packages transformers 5.23.0, fla-core 0.6.0 and safetensors beside it,
from the repository's root:

    python3 crates/conformance/golden/layers.py

writes layers.safetensors beside this file. A case is a layer: its parameters as zoo-attention stores them, an
input [batch, seq, d_model], the output, a gradient of the output, and the gradients of the input and of the
parameters that the module has, too.

- differential: DiffLlama's attention, whose norm has no weights
- kda: Kimi Linear's delta attention: short convolutions, gates, the norm of each head, and the output gate,
  whose two projections are one here
- output-gate: Qwen3-Next's attention, which also has QK-norm, a partial rotary embedding and shared heads
- retention: flash-linear-attention's reference between projections, and PyTorch's GroupNorm

The modules compute in float64, except parts that they always compute in float32.
"""

import pathlib

import torch
import torch.nn.functional as F
from fla.ops.retention.naive import naive_retention
from safetensors.torch import save_file
from transformers import DiffLlamaConfig, KimiLinearConfig, Qwen3NextConfig
from transformers.models.diffllama import modeling_diffllama as diffllama
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

SEED = 20261121
BATCH, SEQ, D_MODEL, HEADS, D_HEAD = 2, 13, 10, 4, 6
KV_HEADS, CONVOLUTION, LAYER = 2, 4, 2
WIDTH = HEADS * D_HEAD
CONVOLVED = ("query", "key", "value")


def randn(*shape, std=1.0):
    """Normal values that are representable in float32."""
    return (std * torch.randn(*shape)).float().double().requires_grad_()


def projection(d_in, d_out):
    return randn(d_in, d_out, std=d_in**-0.5)


def projections(kv_heads=HEADS):
    return {
        "query.weight": projection(D_MODEL, WIDTH),
        "key.weight": projection(D_MODEL, kv_heads * D_HEAD),
        "value.weight": projection(D_MODEL, kv_heads * D_HEAD),
        "output.weight": projection(WIDTH, D_MODEL),
    }


def causal_mask():
    return torch.full([SEQ, SEQ], -torch.inf).triu(1)[None, None]


def call(module, parameters, *inputs):
    output = torch.func.functional_call(module, parameters, inputs, strict=True)
    return output[0] if isinstance(output, tuple) else output


def transposed(ours):
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
    return {f"{theirs}.weight": ours[f"{name}.weight"].T for name, theirs in names.items()}


def differential(x, ours):
    """The two halves of a head are two heads of DiffLlama, HEADS apart."""
    config = DiffLlamaConfig(
        hidden_size=D_MODEL,
        num_attention_heads=2 * HEADS,
        num_key_value_heads=2 * HEADS,
        head_dim=D_HEAD // 2,
        rms_norm_eps=1e-5,
        attn_implementation="eager",
    )
    module = diffllama.DiffLlamaAttention(config, LAYER)
    halves = lambda weight: weight.unflatten(0, (HEADS, 2, -1)).transpose(0, 1).flatten(0, 2)
    theirs = {name: w if name == "o_proj.weight" else halves(w) for name, w in transposed(ours).items()}
    vectors = ["lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"]
    theirs |= dict(zip(vectors, ours["params.differential"]))
    still = torch.ones(1, SEQ, D_HEAD // 2), torch.zeros(1, SEQ, D_HEAD // 2)
    return call(module, theirs, x, still, causal_mask())


def kda(x, ours):
    config = KimiLinearConfig(
        hidden_size=D_MODEL,
        linear_num_heads=HEADS,
        linear_head_dim=D_HEAD,
        linear_conv_kernel_dim=CONVOLUTION,
        rms_norm_eps=1e-5,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
    )
    # In place of flash-linear-attention's kernel, which needs a GPU.
    kimi.chunk_kimi_delta_attention = kimi.recurrent_kimi_delta_attention.__wrapped__
    module = kimi.KimiLinearDeltaAttention(config, 0)
    module.g_a_proj = torch.nn.Identity()
    module.g_b_proj = torch.nn.Linear(D_MODEL, WIDTH, bias=False)
    # The last weight is that of the current position.
    convolutions = torch.cat([ours[f"params.short_conv.{name}"] for name in CONVOLVED], 1)
    theirs = transposed(ours) | {
        "conv1d.weight": convolutions.flip(0).T[:, None],
        "forget_gate.f_a_proj.weight": ours["params.decay_input.weight"].T,
        "forget_gate.f_b_proj.weight": ours["params.decay.weight"].T,
        "forget_gate.dt_bias": ours["params.decay.bias"],
        "forget_gate.A_log": ours["params.log_rate"].view(1, 1, HEADS, 1),
        "b_proj.weight": ours["params.strength.weight"].T,
        "g_b_proj.weight": ours["gate.weight"].T,
        "o_norm.weight": ours["params.head_norm.gamma"],
    }
    return call(module, theirs, x)


def output_gate(x, ours):
    config = Qwen3NextConfig(
        hidden_size=D_MODEL,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=D_HEAD,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 2 / 3},
        attn_implementation="eager",
    )
    module = qwen.Qwen3NextAttention(config, 0)
    by_head = [ours[f"{name}.weight"].T.unflatten(0, (HEADS, D_HEAD)) for name in ("query", "gate")]
    theirs = transposed(ours) | {
        "q_proj.weight": torch.cat(by_head, 1).flatten(0, 1),
        "q_norm.weight": ours["query_norm.gamma"] - 1,
        "k_norm.weight": ours["key_norm.gamma"] - 1,
    }
    embeddings = qwen.Qwen3NextRotaryEmbedding(config)(x, torch.arange(SEQ)[None])
    assert embeddings[0].shape[-1] == 4
    return call(module, theirs, x, embeddings, causal_mask())


def retention(x, ours):
    by_head = lambda name: (x @ ours[f"{name}.weight"]).unflatten(2, (HEADS, D_HEAD)).transpose(1, 2)
    context = naive_retention(*map(by_head, ("query", "key", "value")))
    context = context.transpose(1, 2).flatten(0, 1).flatten(1)  # [batch * seq, heads * d_head]
    context = F.group_norm(context, HEADS).unflatten(0, (BATCH, SEQ))
    return context @ ours["output.weight"]


def main():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(SEED)
    ones = lambda count: (1 + 0.2 * torch.randn(count)).float().double().requires_grad_()
    cases = {
        "differential": (
            differential,
            projections()
            | {
                "params.differential": randn(4, D_HEAD // 2, std=0.3),
                "params.head_norm.gamma": torch.ones(D_HEAD),
            },
        ),
        "kda": (
            kda,
            projections()
            | {f"params.short_conv.{name}": randn(CONVOLUTION, WIDTH, std=0.5) for name in CONVOLVED}
            | {
                "gate.weight": projection(D_MODEL, WIDTH),
                "params.decay_input.weight": projection(D_MODEL, D_HEAD),
                "params.decay.weight": projection(D_HEAD, WIDTH),
                "params.decay.bias": randn(WIDTH),
                "params.log_rate": randn(HEADS, std=0.5),
                "params.strength.weight": projection(D_MODEL, HEADS),
                "params.strength.bias": torch.zeros(HEADS),
                "params.head_norm.gamma": ones(D_HEAD),
            },
        ),
        "output-gate": (
            output_gate,
            projections(KV_HEADS)
            | {
                "gate.weight": projection(D_MODEL, WIDTH),
                "query_norm.gamma": ones(D_HEAD),
                "key_norm.gamma": ones(D_HEAD),
            },
        ),
        "retention": (retention, projections()),
    }
    tensors = {}
    for name, (layer, parameters) in cases.items():
        x, upstream = randn(BATCH, SEQ, D_MODEL), randn(BATCH, SEQ, D_MODEL)
        output = layer(x, parameters)
        # The others are constants in the module.
        inputs = {"x": x} | {part: tensor for part, tensor in parameters.items() if tensor.requires_grad}
        gradients = torch.autograd.grad((output * upstream).sum(), inputs.values())
        case = {"x": x, "upstream": upstream, "context": output}
        case |= {f"weights.{part}": tensor for part, tensor in parameters.items()}
        case |= {f"d_{part}": gradient for part, gradient in zip(inputs, gradients)}
        tensors |= {f"{name}.{part}": tensor.detach().float().contiguous() for part, tensor in case.items()}
    metadata = {"cases": " ".join(cases), "torch": "2.15.0", "seed": str(SEED)}
    metadata |= {"lambda_init": str(diffllama.lambda_init_fn(LAYER))}
    save_file(tensors, pathlib.Path(__file__).with_suffix(".safetensors"), metadata)


if __name__ == "__main__":
    main()
