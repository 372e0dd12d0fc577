"""Transformer of the paper: post-norm, tied embeddings, sinusoidal positions, and a final norm as
in nn.Transformer."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks import Cache, CrossAttention, FeedForward, SelfAttention, init_weights, sinusoidal_positions


class EncoderLayer(nn.Module):
    def __init__(self, setup):
        super().__init__()
        d_model = setup["d_model"]
        self.attention = SelfAttention(d_model, setup["heads"])
        self.attention_norm = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, setup["d_hidden"], nn.ReLU())
        self.feed_forward_norm = nn.LayerNorm(d_model)

    def forward(self, x):
        x = self.attention_norm(x + self.attention(x, causal=False))
        return self.feed_forward_norm(x + self.feed_forward(x))


class DecoderLayer(nn.Module):
    def __init__(self, setup):
        super().__init__()
        d_model = setup["d_model"]
        self.attention = SelfAttention(d_model, setup["heads"])
        self.attention_norm = nn.LayerNorm(d_model)
        self.cross = CrossAttention(d_model, setup["heads"])
        self.cross_norm = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, setup["d_hidden"], nn.ReLU())
        self.feed_forward_norm = nn.LayerNorm(d_model)

    def forward(self, x, memory, cache=None):
        x = self.attention_norm(x + self.attention(x, causal=True, cache=cache))
        x = self.cross_norm(x + self.cross(x, memory))
        return self.feed_forward_norm(x + self.feed_forward(x))


class Transformer(nn.Module):
    def __init__(self, setup):
        super().__init__()
        self.setup = setup
        d_model = setup["d_model"]
        self.embedding = nn.Embedding(setup["vocabulary"], d_model)
        self.register_buffer("positions", sinusoidal_positions(setup["n"], d_model), persistent=False)
        self.encoder = nn.ModuleList(EncoderLayer(setup) for _ in range(setup["layers"]))
        self.encoder_norm = nn.LayerNorm(d_model)
        self.decoder = nn.ModuleList(DecoderLayer(setup) for _ in range(setup["layers"]))
        self.decoder_norm = nn.LayerNorm(d_model)
        init_weights(self, d_model**-0.5)

    def embed(self, tokens, first=0):
        positions = self.positions[first : first + tokens.shape[1]]
        return self.embedding(tokens) * math.sqrt(self.setup["d_model"]) + positions

    def encode(self, source):
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x)
        return self.encoder_norm(x)

    def logits(self, x):
        return F.linear(self.decoder_norm(x), self.embedding.weight)

    def forward(self, source, target):
        encoded = self.encode(source)
        x = self.embed(target)
        for layer in self.decoder:
            x = layer(x, layer.cross.project_memory(encoded))
        return self.logits(x)

    def batch(self, random_tokens):
        batch, n = self.setup["batch"], self.setup["n"]
        target = random_tokens(batch, n + 1)
        return (random_tokens(batch, n), target[:, :-1].contiguous()), target[:, 1:].contiguous()

    def prompt(self, inputs):
        source, target = inputs
        return source, target[:, :1]

    def generate(self, source, tokens):
        batch, new = source.shape[0], self.setup["generated"]
        weight = self.embedding.weight
        heads = self.setup["heads"]
        d_head = self.setup["d_model"] // heads
        encoded = self.encode(source)
        memories = [layer.cross.project_memory(encoded) for layer in self.decoder]
        caches = [Cache(batch, heads, new, d_head, weight) for _ in self.decoder]
        generated = torch.empty(batch, new, dtype=torch.long, device=weight.device)
        for step in range(new):
            x = self.embed(tokens, step)
            for layer, memory, cache in zip(self.decoder, memories, caches):
                x = layer(x, memory, cache)
            tokens = self.logits(x).argmax(-1)
            generated[:, step] = tokens[:, 0]
        return generated

    def generated_logits(self, inputs, generated):
        """Logits of a full forward pass at the positions of generated tokens."""
        source, begin = inputs
        return self(source, torch.cat([begin, generated[:, :-1]], 1))
