"""GPT: learned positions, norms before each part, the embedding for a head."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks import Cache, PreNormLayer, draw


class Gpt(nn.Module):
    def __init__(self, setup):
        super().__init__()
        self.setup = setup
        d_model = setup["d_model"]
        self.embedding = nn.Embedding(setup["vocabulary"], d_model)
        self.positions = nn.Embedding(setup["n"], d_model)
        layers = (PreNormLayer(setup, nn.GELU(approximate="tanh")) for _ in range(setup["layers"]))
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(d_model)
        draw(self, 0.02)

    def forward(self, tokens):
        return self.predicted(self.through(tokens, 0, [None] * len(self.layers)))

    def through(self, tokens, first, caches):
        x = self.embedding(tokens) + self.positions.weight[first : first + tokens.shape[1]]
        for layer, cache in zip(self.layers, caches):
            x = layer(x, causal=True, cache=cache)
        return x

    def predicted(self, x):
        return F.linear(self.norm(x), self.embedding.weight)

    def batch(self, draw):
        setup = self.setup
        tokens = draw(setup["batch"], setup["n"] + 1)
        return (tokens[:, :-1].contiguous(),), tokens[:, 1:].contiguous()

    def prompt(self, inputs):
        (tokens,) = inputs
        return (tokens[:, : self.setup["prompt"]],)

    def generate(self, tokens):
        batch, prompt = tokens.shape
        new = self.setup["generated"]
        weight = self.embedding.weight
        heads = self.setup["heads"]
        d_head = self.setup["d_model"] // heads
        caches = [Cache(batch, heads, prompt + new, d_head, weight) for _ in self.layers]
        made = torch.empty(batch, new, dtype=torch.long, device=weight.device)
        for at in range(new):
            first = 0 if at == 0 else prompt + at - 1
            x = self.through(tokens, first, caches)
            tokens = self.predicted(x[:, -1:]).argmax(-1)
            made[:, at] = tokens[:, 0]
        return made

    def said_of(self, inputs, made):
        """What a whole forward pass says of the tokens that were made, one by one."""
        (tokens,) = inputs
        logits = self(torch.cat([tokens, made[:, :-1]], 1))
        return logits[:, tokens.shape[1] - 1 :]
