"""Golden values of multi-head latent attention, from the attention module of DeepSeek-V3 in transformers.

PyTorch 2.15.0, seed 20261119. With the packages transformers 5.23.0 and safetensors beside it, from
the repository's root:

    python3 crates/conformance/golden/mla.py

writes mla.safetensors beside this file: the module's parameters, transposed as Burn stores them, an
input [batch, seq, d_model], a gradient of the output, the output and the gradient of the input.
Everything is computed in float64 except the angles of the rotary positions, which the module
computes in float32.
"""

import pathlib

import torch
import transformers
from safetensors.torch import save_file
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek

SEED = 20261119
BATCH, SEQ, D_MODEL, HEADS, D_HEAD, LATENT, ROPE = 2, 11, 24, 3, 8, 10, 4


def main():
    torch.manual_seed(SEED)
    config = DeepseekV3Config(
        hidden_size=D_MODEL,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        q_lora_rank=None,
        kv_lora_rank=LATENT,
        qk_nope_head_dim=D_HEAD,
        qk_rope_head_dim=ROPE,
        v_head_dim=D_HEAD,
        attn_implementation="eager",
    )
    attention = deepseek.DeepseekV3Attention(config, layer_idx=0).double().eval()
    with torch.no_grad():
        attention.kv_a_layernorm.weight.normal_(1.0, 0.2)
    x = torch.randn(BATCH, SEQ, D_MODEL, dtype=torch.float64, requires_grad=True)
    positions = torch.arange(SEQ)[None]
    embeddings = deepseek.DeepseekV3RotaryEmbedding(config)(x, positions)
    mask = torch.full((SEQ, SEQ), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    output, _ = attention(x, embeddings, mask)
    output_grad = torch.randn_like(output)
    output.backward(output_grad)

    # For each head the rows of its keys, then those of its values.
    up = attention.kv_b_proj.weight.view(HEADS, 2, D_HEAD, LATENT)
    tensors = {
        "query": attention.q_proj.weight,
        "key": attention.kv_a_proj_with_mqa.weight,
        "latent.key": up[:, 0].reshape(-1, LATENT),
        "value": up[:, 1].reshape(-1, LATENT),
        "output": attention.o_proj.weight,
    }
    tensors = {name: tensor.t() for name, tensor in tensors.items()} | {
        "latent.norm": attention.kv_a_layernorm.weight,
        "x": x,
        "context": output,
        "output_grad": output_grad,
        "d_x": x.grad,
    }
    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    metadata = {
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "seed": str(SEED),
    }
    path = pathlib.Path(__file__).with_name("mla.safetensors")
    save_file(tensors, path, metadata)


main()
