"""Hierarchical attention network. The batches have no padding, so sequences are not packed or
masked."""

import torch
import torch.nn as nn


class ContextAttention(nn.Module):
    """Additive attention pooling with a learned context vector."""

    def __init__(self, d_model, d_attention):
        super().__init__()
        self.projection = nn.Linear(d_model, d_attention)
        self.context = nn.Parameter(torch.randn(d_attention) / d_attention**0.5)

    def forward(self, hidden):
        weights = (self.projection(hidden).tanh() @ self.context).softmax(1)
        return (weights[:, None] @ hidden)[:, 0]


class Han(nn.Module):
    def __init__(self, setup):
        super().__init__()
        self.setup = setup
        hidden, attention = setup["d_hidden"], setup["d_attention"]
        self.embedding = nn.Embedding(setup["vocabulary"], setup["d_model"])
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.words = nn.GRU(setup["d_model"], hidden, batch_first=True, bidirectional=True)
        self.word_attention = ContextAttention(2 * hidden, attention)
        self.sentences = nn.GRU(2 * hidden, hidden, batch_first=True, bidirectional=True)
        self.sentence_attention = ContextAttention(2 * hidden, attention)
        self.head = nn.Linear(2 * hidden, setup["classes"])

    def forward(self, documents):
        batch, sentences, _ = documents.shape
        words, _ = self.words(self.embedding(documents.flatten(0, 1)))
        sentence_vectors = self.word_attention(words).view(batch, sentences, -1)
        hidden, _ = self.sentences(sentence_vectors)
        return self.head(self.sentence_attention(hidden))

    def batch(self, random_tokens):
        setup = self.setup
        batch, sentences = setup["batch"], setup["sentences"]
        documents = random_tokens(batch, sentences, setup["n"] // sentences)
        return (documents,), random_tokens(batch, below=setup["classes"])
