"""Recurrent encoder-decoder with additive attention and input feeding.

The encoder is a bidirectional nn.GRU. Because of input feeding, the decoder is a loop over
nn.GRUCell; the keys are projected once before it, and the output layer runs once after it.
"""

import torch
import torch.nn as nn

from blocks import init_weights


class Seq2Seq(nn.Module):
    def __init__(self, setup):
        super().__init__()
        self.setup = setup
        embedding, hidden = setup["d_model"], setup["d_hidden"]
        self.source_embedding = nn.Embedding(setup["vocabulary"], embedding)
        self.target_embedding = nn.Embedding(setup["vocabulary"], embedding)
        self.encoder = nn.GRU(embedding, hidden // 2, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(hidden, hidden)
        self.decoder = nn.GRUCell(embedding + hidden, hidden)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden)
        self.combination = nn.Linear(2 * hidden, hidden, bias=False)
        self.head = nn.Linear(hidden, setup["vocabulary"])
        init_weights(self, 1.0)
        self.vector = nn.Parameter(torch.randn(hidden) / hidden**0.5)

    def encode(self, source):
        """Encoder outputs, their projected keys, and the initial decoder state."""
        encoded, last = self.encoder(self.source_embedding(source))
        state = self.bridge(torch.cat([last[0], last[1]], -1)).tanh()
        return encoded, self.key(encoded), state

    def step(self, embedded, fed, state, encoded, keys):
        state = self.decoder(torch.cat([embedded, fed], -1), state)
        weights = ((self.query(state)[:, None] + keys).tanh() @ self.vector).softmax(-1)
        context = (weights[:, None] @ encoded)[:, 0]
        return self.combination(torch.cat([context, state], -1)).tanh(), state

    def forward(self, source, target):
        encoded, keys, state = self.encode(source)
        fed = torch.zeros_like(state)
        combined = []
        for embedded in self.target_embedding(target).unbind(1):
            fed, state = self.step(embedded, fed, state, encoded, keys)
            combined.append(fed)
        return self.head(torch.stack(combined, 1))

    def batch(self, random_tokens):
        batch, n = self.setup["batch"], self.setup["n"]
        target = random_tokens(batch, n + 1)
        return (random_tokens(batch, n), target[:, :-1].contiguous()), target[:, 1:].contiguous()

    def prompt(self, inputs):
        source, target = inputs
        return source, target[:, :1]

    def generate(self, source, tokens):
        encoded, keys, state = self.encode(source)
        fed = torch.zeros_like(state)
        tokens = tokens[:, 0]
        generated = torch.empty(len(tokens), self.setup["generated"], dtype=torch.long, device=tokens.device)
        for step in range(generated.shape[1]):
            fed, state = self.step(self.target_embedding(tokens), fed, state, encoded, keys)
            tokens = self.head(fed).argmax(-1)
            generated[:, step] = tokens
        return generated

    def generated_logits(self, inputs, generated):
        """Logits of a full forward pass at the positions of generated tokens."""
        source, begin = inputs
        return self(source, torch.cat([begin, generated[:, :-1]], 1))
