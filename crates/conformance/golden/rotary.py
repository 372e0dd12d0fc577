"""Golden values of rotary position embedding, from the functions of transformers.

PyTorch 2.15.0, seed 20261119. With the packages transformers 5.23.0 and safetensors beside it, from
the repository's root:

    python3 crates/conformance/golden/rotary.py

writes rotary.safetensors beside this file. Queries are [batch, heads, seq, d_head]. Each case is a
tensor of rotated queries, of which the first is at position FIRST, and a metadata entry of the same
name: the configuration in TOML. The functions compute frequencies and angles in float32.
"""

import pathlib

import torch
from safetensors.torch import save_file
from transformers import GlmConfig, GPTNeoXConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.glm import modeling_glm as glm
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.llama import modeling_llama as llama

SEED = 20261119
BATCH, HEADS, SEQ, D_HEAD, FIRST = 2, 2, 24, 16, 5


def config(kind, context=1000, **parameters):
    sizes = {"hidden_size": HEADS * D_HEAD, "num_attention_heads": HEADS, "head_dim": D_HEAD}
    return kind(max_position_embeddings=context, rope_parameters=parameters, **sizes)


def rope(kind="default", theta=10000.0, **parameters):
    return {"rope_type": kind, "rope_theta": theta, **parameters}


def positions():
    return torch.arange(FIRST, FIRST + SEQ)[None]


def rotate_llama(query, **parameters):
    """Halves of whole heads."""
    embedding = llama.LlamaRotaryEmbedding(config(LlamaConfig, **parameters))
    return llama.apply_rotary_pos_emb(query, query, *embedding(query, positions()))[0]


def rotate_gpt_neox(query, **parameters):
    """Halves of a part of each head."""
    embedding = gpt_neox.GPTNeoXRotaryEmbedding(config(GPTNeoXConfig, **parameters))
    return gpt_neox.apply_rotary_pos_emb(query, query, *embedding(query, positions()))[0]


def rotate_glm(query, **parameters):
    """Interleaved pairs of a part of each head."""
    embedding = glm.GlmRotaryEmbedding(config(GlmConfig, **parameters))
    return glm.apply_rotary_pos_emb(query, query, *embedding(query, positions()))[0]


def rotate_ntk(query, factor):
    """The dynamic formula with factor 2 at the length at which it multiplies theta as the static one."""
    context = 1000
    length = int(context * (factor + 1) / 2)
    parameters = config(LlamaConfig, context, **rope("dynamic", factor=2.0))
    frequencies, _ = ROPE_INIT_FUNCTIONS["dynamic"](parameters, seq_len=length)
    angles = positions()[..., None].float() * torch.cat([frequencies, frequencies])
    return llama.apply_rotary_pos_emb(query, query, angles.cos(), angles.sin())[0]


def yarn(factor, context, **parameters):
    return rope("yarn", factor=factor, original_max_position_embeddings=context, **parameters)


def llama3(factor, context, low, high):
    parameters = {"low_freq_factor": low, "high_freq_factor": high}
    return rope("llama3", 500000.0, factor=factor, original_max_position_embeddings=context, **parameters)


HALVES = 'layout = "halves"\n'

CASES = {
    "default": ("", lambda x: rotate_glm(x, **rope(partial_rotary_factor=1.0))),
    "halves": (HALVES, lambda x: rotate_llama(x, **rope())),
    "theta": (HALVES + "theta = 500000.0", lambda x: rotate_llama(x, **rope(theta=500000.0))),
    "partial": ("fraction = 0.5", lambda x: rotate_glm(x, **rope(partial_rotary_factor=0.5))),
    "partial-halves": (
        HALVES + "fraction = 0.4",
        lambda x: rotate_gpt_neox(x, **rope(partial_rotary_factor=0.4)),
    ),
    "linear": (
        HALVES + 'scaling = { kind = "linear", factor = 4.0 }',
        lambda x: rotate_llama(x, **rope("linear", factor=4.0)),
    ),
    "ntk": (HALVES + 'scaling = { kind = "ntk", factor = 3.0 }', lambda x: rotate_ntk(x, 3.0)),
    "yarn": (
        HALVES + 'scaling = { kind = "yarn", factor = 4.0, original_context = 1000 }',
        lambda x: rotate_llama(x, context=4000, **yarn(4.0, 1000)),
    ),
    "yarn-options": (
        HALVES + 'scaling = { kind = "yarn", factor = 8.0, original_context = 200, beta_fast = 8.0, '
        "beta_slow = 2.0, attention_factor = 1.25 }",
        lambda x: rotate_llama(
            x, context=1600, **yarn(8.0, 200, beta_fast=8.0, beta_slow=2.0, attention_factor=1.25)
        ),
    ),
    "yarn-partial": (
        'fraction = 0.5\nscaling = { kind = "yarn", factor = 4.0, original_context = 1000 }',
        lambda x: rotate_glm(x, context=4000, **yarn(4.0, 1000, partial_rotary_factor=0.5)),
    ),
    "llama3": (
        HALVES + 'theta = 500000.0\nscaling = { kind = "llama3", factor = 8.0, original_context = 200 }',
        lambda x: rotate_llama(x, context=1600, **llama3(8.0, 200, 1.0, 4.0)),
    ),
    "llama3-options": (
        HALVES + 'theta = 500000.0\nscaling = { kind = "llama3", factor = 32.0, original_context = 500, '
        "low_frequency_factor = 0.5, high_frequency_factor = 40.0 }",
        lambda x: rotate_llama(x, context=16000, **llama3(32.0, 500, 0.5, 40.0)),
    ),
}


def main():
    torch.manual_seed(SEED)
    query = torch.randn(BATCH, HEADS, SEQ, D_HEAD)
    rotated = {name: rotate(query).contiguous() for name, (_, rotate) in CASES.items()}
    metadata = {name: toml for name, (toml, _) in CASES.items()}
    metadata |= {"cases": " ".join(CASES), "first": str(FIRST), "torch": "2.15.0", "seed": str(SEED)}
    path = pathlib.Path(__file__).with_suffix(".safetensors")
    save_file({"query": query} | rotated, path, metadata)


if __name__ == "__main__":
    main()
