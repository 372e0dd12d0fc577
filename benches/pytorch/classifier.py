"""Encoder classifier with mean pooling."""

import math

import torch.nn as nn

from blocks import PreNormLayer, init_weights, sinusoidal_positions


class Classifier(nn.Module):
    def __init__(self, setup):
        super().__init__()
        self.setup = setup
        d_model = setup["d_model"]
        self.embedding = nn.Embedding(setup["vocabulary"], d_model)
        self.register_buffer("positions", sinusoidal_positions(setup["n"], d_model), persistent=False)
        layers = (PreNormLayer(setup, nn.GELU()) for _ in range(setup["layers"]))
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, setup["classes"])
        init_weights(self, d_model**-0.5)

    def forward(self, tokens):
        x = self.embedding(tokens) * math.sqrt(self.setup["d_model"]) + self.positions
        for layer in self.layers:
            x = layer(x, causal=False)
        return self.head(self.norm(x).mean(1))

    def batch(self, random_tokens):
        setup = self.setup
        return (random_tokens(setup["batch"], setup["n"]),), random_tokens(setup["batch"], below=setup["classes"])
