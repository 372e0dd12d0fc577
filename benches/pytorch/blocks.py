"""Layers as a PyTorch user writes them who wants them fast: one matmul for query, key and
value, scaled_dot_product_attention, and caches that are written in place."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Cache:
    """Keys and values of the places so far, with room for all there will be."""

    def __init__(self, batch, heads, room, d_head, like):
        shape = batch, heads, room, d_head
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
        self.inward = nn.Linear(d_model, 3 * d_model)
        self.outward = nn.Linear(d_model, d_model)

    def forward(self, x, causal, cache=None):
        batch, seq, d_model = x.shape
        query, key, value = (
            part.view(batch, seq, self.heads, -1).transpose(1, 2) for part in self.inward(x).chunk(3, -1)
        )
        if cache is not None:
            # The prompt is causal by itself; a token after it sees all that is there.
            causal = causal and cache.length == 0 and seq > 1
            key, value = cache.extend(key, value)
        context = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self.outward(context.transpose(1, 2).reshape(batch, seq, d_model))


class CrossAttention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(d_model, d_model)
        self.remembered = nn.Linear(d_model, 2 * d_model)
        self.outward = nn.Linear(d_model, d_model)

    def remember(self, other):
        """Keys and values of the other sequence, to be worked out once."""
        batch, seq, _ = other.shape
        return tuple(
            part.view(batch, seq, self.heads, -1).transpose(1, 2) for part in self.remembered(other).chunk(2, -1)
        )

    def forward(self, x, memory):
        batch, seq, d_model = x.shape
        query = self.query(x).view(batch, seq, self.heads, -1).transpose(1, 2)
        context = F.scaled_dot_product_attention(query, *memory)
        return self.outward(context.transpose(1, 2).reshape(batch, seq, d_model))


class FeedForward(nn.Sequential):
    def __init__(self, d_model, d_hidden, activation):
        super().__init__(nn.Linear(d_model, d_hidden), activation, nn.Linear(d_hidden, d_model))


class PreNormLayer(nn.Module):
    """Attention to itself and a feed-forward network, each on what is normalised."""

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


def sinusoids(places, d_model):
    """The waves of "Attention Is All You Need"."""
    place = torch.arange(places, dtype=torch.float64)[:, None]
    turn = 1e4 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    waves = torch.stack([(place * turn).sin(), (place * turn).cos()], -1)
    return waves.flatten(1)[:, :d_model].float()


def draw(model, embedding_std):
    """Xavier for matrices, zeros for biases, a normal for embeddings: as ours."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=embedding_std)


def rooted(d_model):
    return math.sqrt(d_model)
