"""Optimised PyTorch layers: fused QKV projection, scaled_dot_product_attention, preallocated KV
caches."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Cache:
    """Preallocated KV cache."""

    def __init__(self, batch, heads, capacity, d_head, like):
        shape = batch, heads, capacity, d_head
        self.key, self.value = (torch.empty(shape, dtype=like.dtype, device=like.device) for _ in range(2))
        self.length = 0

    def extend(self, key, value):
        first, self.length = self.length, self.length + key.shape[2]
        self.key[:, :, first : self.length] = key
        self.value[:, :, first : self.length] = value
        return self.key[:, :, : self.length], self.value[:, :, : self.length]


class SelfAttention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x, causal, cache=None):
        batch, seq, d_model = x.shape
        query, key, value = (
            part.view(batch, seq, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        if cache is not None:
            # The prompt is causal; later tokens attend to the whole cache.
            causal = causal and cache.length == 0 and seq > 1
            key, value = cache.extend(key, value)
        context = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self.output(context.transpose(1, 2).reshape(batch, seq, d_model))


class CrossAttention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(d_model, d_model)
        self.kv = nn.Linear(d_model, 2 * d_model)
        self.output = nn.Linear(d_model, d_model)

    def project_memory(self, memory):
        """Keys and values of the encoder output, computed once."""
        batch, seq, _ = memory.shape
        return tuple(
            part.view(batch, seq, self.heads, -1).transpose(1, 2) for part in self.kv(memory).chunk(2, -1)
        )

    def forward(self, x, key_value):
        batch, seq, d_model = x.shape
        query = self.query(x).view(batch, seq, self.heads, -1).transpose(1, 2)
        context = F.scaled_dot_product_attention(query, *key_value)
        return self.output(context.transpose(1, 2).reshape(batch, seq, d_model))


class FeedForward(nn.Sequential):
    def __init__(self, d_model, d_hidden, activation):
        super().__init__(nn.Linear(d_model, d_hidden), activation, nn.Linear(d_hidden, d_model))


class PreNormLayer(nn.Module):
    """Pre-norm self-attention and feed-forward network."""

    def __init__(self, setup, activation):
        super().__init__()
        d_model = setup["d_model"]
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = SelfAttention(d_model, setup["heads"])
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, setup["d_hidden"], activation)

    def forward(self, x, causal, cache=None):
        x = x + self.attention(self.attention_norm(x), causal, cache)
        return x + self.feed_forward(self.feed_forward_norm(x))


def sinusoidal_positions(n, d_model):
    """Position encoding of "Attention Is All You Need"."""
    position = torch.arange(n, dtype=torch.float64)[:, None]
    frequency = 1e4 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    encoding = torch.stack([(position * frequency).sin(), (position * frequency).cos()], -1)
    return encoding.flatten(1)[:, :d_model].float()


def init_weights(model, embedding_std):
    """Xavier for matrices, zeros for biases, normal for embeddings, as in our models."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=embedding_std)
