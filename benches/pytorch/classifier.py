"""An encoder, the mean of its places, and a class for it."""

import torch.nn as nn

from blocks import PreNormLayer, draw, rooted, sinusoids


class Classifier(nn.Module):
    def __init__(self, setup):
        super().__init__()
        self.setup = setup
        d_model = setup["d_model"]
        self.embedding = nn.Embedding(setup["vocabulary"], d_model)
        self.register_buffer("waves", sinusoids(setup["n"], d_model), persistent=False)
        layers = (PreNormLayer(setup, nn.GELU()) for _ in range(setup["layers"]))
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, setup["classes"])
        draw(self, d_model**-0.5)

    def forward(self, tokens):
        x = self.embedding(tokens) * rooted(self.setup["d_model"]) + self.waves
        for layer in self.layers:
            x = layer(x, causal=False)
        return self.head(self.norm(x).mean(1))

    def batch(self, draw):
        setup = self.setup
        return (draw(setup["batch"], setup["n"]),), draw(setup["batch"], below=setup["classes"])
