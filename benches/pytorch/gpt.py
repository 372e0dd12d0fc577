"""GPT: learned positions, pre-norm, output tied to the embedding."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks import Cache, PreNormLayer, init_weights


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
        init_weights(self, 0.02)

    def forward(self, tokens):
        return self.logits(self.run_layers(tokens, 0, [None] * len(self.layers)))

    def run_layers(self, tokens, first, caches):
        x = self.embedding(tokens) + self.positions.weight[first : first + tokens.shape[1]]
        for layer, cache in zip(self.layers, caches):
            x = layer(x, causal=True, cache=cache)
        return x

    def logits(self, x):
        return F.linear(self.norm(x), self.embedding.weight)

    def batch(self, random_tokens):
        setup = self.setup
        tokens = random_tokens(setup["batch"], setup["n"] + 1)
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
        generated = torch.empty(batch, new, dtype=torch.long, device=weight.device)
        for step in range(new):
            first = 0 if step == 0 else prompt + step - 1
            x = self.run_layers(tokens, first, caches)
            tokens = self.logits(x[:, -1:]).argmax(-1)
            generated[:, step] = tokens[:, 0]
        return generated

    def generated_logits(self, inputs, generated):
        """Logits of a full forward pass at the positions of generated tokens."""
        (tokens,) = inputs
        logits = self(torch.cat([tokens, generated[:, :-1]], 1))
        return logits[:, tokens.shape[1] - 1 :]
