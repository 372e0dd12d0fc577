"""A recurrent encoder and decoder with additive attention and input feeding.

The encoder is nn.GRU, both ways, over the whole source. What is fed into a step of the decoder
is known after the step before, so there is a loop over its steps, on nn.GRUCell, with the
source's half of the attention worked out once before it, and the head once after it.
"""

import torch
import torch.nn as nn

from blocks import draw as draw_weights


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
        draw_weights(self, 1.0)
        self.vector = nn.Parameter(torch.randn(hidden) / hidden**0.5)

    def read(self, source):
        """Places and keys of the source, and the state that the decoder begins with."""
        places, last = self.encoder(self.source_embedding(source))
        state = self.bridge(torch.cat([last[0], last[1]], -1)).tanh()
        return places, self.key(places), state

    def step(self, embedded, fed, state, places, keys):
        state = self.decoder(torch.cat([embedded, fed], -1), state)
        weights = ((self.query(state)[:, None] + keys).tanh() @ self.vector).softmax(-1)
        context = (weights[:, None] @ places)[:, 0]
        return self.combination(torch.cat([context, state], -1)).tanh(), state

    def forward(self, source, target):
        places, keys, state = self.read(source)
        fed = torch.zeros_like(state)
        combined = []
        for embedded in self.target_embedding(target).unbind(1):
            fed, state = self.step(embedded, fed, state, places, keys)
            combined.append(fed)
        return self.head(torch.stack(combined, 1))

    def batch(self, draw):
        batch, n = self.setup["batch"], self.setup["n"]
        target = draw(batch, n + 1)
        return (draw(batch, n), target[:, :-1].contiguous()), target[:, 1:].contiguous()

    def prompt(self, inputs):
        source, target = inputs
        return source, target[:, :1]

    def generate(self, source, tokens):
        places, keys, state = self.read(source)
        fed = torch.zeros_like(state)
        tokens = tokens[:, 0]
        made = torch.empty(len(tokens), self.setup["generated"], dtype=torch.long, device=tokens.device)
        for at in range(made.shape[1]):
            fed, state = self.step(self.target_embedding(tokens), fed, state, places, keys)
            tokens = self.head(fed).argmax(-1)
            made[:, at] = tokens
        return made

    def said_of(self, inputs, made):
        """What a whole forward pass says of the tokens that were made, one by one."""
        source, begin = inputs
        return self(source, torch.cat([begin, made[:, :-1]], 1))
