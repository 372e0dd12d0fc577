"""Golden values of small PyTorch models.

PyTorch 2.9.1, seed 20170612. With the package safetensors beside it, from the repository's root:

    python3 crates/conformance/golden/models.py

writes models.safetensors beside this file, and gpt2.pt, the weights of the GPT as torch.save
writes them. Weights are representable in float32; results are computed in float64.
"""

import math
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

TORCH = "2.9.1"
SEED = 20170612


def randomise(module):
    """Randomise all parameters, since initial zeros and ones would not test them."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            values = torch.randn(*parameter.shape, dtype=torch.float32).double()
            is_scale = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(1 + 0.2 * values if is_scale else 0.4 * values)
    # Round to float32, the dtype of the file.
    module.float().double()
    return module.eval()


def sinusoids(length, d_model):
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    rates = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    table = torch.zeros(length, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(positions * rates)
    table[:, 1::2] = torch.cos(positions * rates)
    return table


class Translator(nn.Module):
    """nn.Transformer between embeddings and an output."""

    D_MODEL, HEADS, SOURCE, TARGET = 16, 2, 13, 11

    def __init__(self, activation, norm_first):
        super().__init__()
        self.source_embedding = nn.Embedding(self.SOURCE, self.D_MODEL)
        self.target_embedding = nn.Embedding(self.TARGET, self.D_MODEL)
        self.transformer = nn.Transformer(
            self.D_MODEL,
            self.HEADS,
            num_encoder_layers=2,
            num_decoder_layers=2,
            dim_feedforward=24,
            dropout=0.0,
            activation=activation,
            norm_first=norm_first,
            batch_first=True,
        )
        self.output = nn.Linear(self.D_MODEL, self.TARGET)

    def forward(self, source, lengths, target):
        def embedded(embedding, tokens):
            positions = sinusoids(tokens.shape[1], self.D_MODEL)
            return embedding(tokens) * math.sqrt(self.D_MODEL) + positions

        padding = torch.arange(source.shape[1])[None, :] >= lengths[:, None]
        later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        decoded = self.transformer(
            embedded(self.source_embedding, source),
            embedded(self.target_embedding, target),
            tgt_mask=later,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return self.output(decoded)


def translator(activation, norm_first):
    model = randomise(Translator(activation, norm_first).double())
    source = torch.randint(0, Translator.SOURCE, (2, 6))
    lengths = torch.tensor([6, 4])
    target = torch.randint(0, Translator.TARGET, (2, 5))
    logits = model(source, lengths, target)
    return model, {"source": source, "lengths": lengths, "target": target, "logits": logits}


class Conv1D(nn.Module):
    """A linear layer as in GPT-2 checkpoints, with a transposed matrix."""

    def __init__(self, width, of):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(of, width))
        self.bias = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return x @ self.weight + self.bias


class Block(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(d_model)
        self.attn = nn.ModuleDict({"c_attn": Conv1D(3 * d_model, d_model), "c_proj": Conv1D(d_model, d_model)})
        self.ln_2 = nn.LayerNorm(d_model)
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(4 * d_model, d_model), "c_proj": Conv1D(d_model, 4 * d_model)})

    def forward(self, x):
        batch, seq, d_model = x.shape
        heads = self.attn["c_attn"](self.ln_1(x)).view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.attn["c_proj"](attended.transpose(1, 2).reshape(batch, seq, d_model))
        hidden = nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](hidden)


class Gpt(nn.Module):
    """GPT-2, its parts named as in its published checkpoints."""

    VOCABULARY, LONGEST, D_MODEL, HEADS, LAYERS = 17, 12, 16, 2, 2

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(self.VOCABULARY, self.D_MODEL)
        self.wpe = nn.Embedding(self.LONGEST, self.D_MODEL)
        self.h = nn.ModuleList(Block(self.D_MODEL, self.HEADS) for _ in range(self.LAYERS))
        self.ln_f = nn.LayerNorm(self.D_MODEL)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def gpt():
    model = randomise(Gpt().double())
    tokens = torch.randint(0, Gpt.VOCABULARY, (2, 7))
    return model, {"tokens": tokens, "logits": model(tokens)}


class Pooling(nn.Module):
    def __init__(self, d_model, d_attention):
        super().__init__()
        self.projection = nn.Linear(d_model, d_attention)
        self.context = nn.Parameter(torch.empty(d_attention))

    def forward(self, x, lengths):
        scores = torch.tanh(self.projection(x)) @ self.context
        padding = torch.arange(x.shape[1])[None, :] >= lengths[:, None]
        weights = scores.masked_fill(padding, -math.inf).softmax(1)
        return (weights[:, :, None] * x).sum(1), weights


class Han(nn.Module):
    """Hierarchical attention network with nn.GRU."""

    VOCABULARY, CLASSES, D_EMBEDDING, D_HIDDEN, D_ATTENTION = 19, 3, 6, 5, 7

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(self.VOCABULARY, self.D_EMBEDDING)
        both = 2 * self.D_HIDDEN
        self.word_gru = nn.GRU(self.D_EMBEDDING, self.D_HIDDEN, batch_first=True, bidirectional=True)
        self.word_attention = Pooling(both, self.D_ATTENTION)
        self.sentence_gru = nn.GRU(both, self.D_HIDDEN, batch_first=True, bidirectional=True)
        self.sentence_attention = Pooling(both, self.D_ATTENTION)
        self.classifier = nn.Linear(both, self.CLASSES)

    @staticmethod
    def encode(gru, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(gru(packed)[0], batch_first=True)[0]

    def forward(self, document, lengths):
        """One document: `[sentences, words]`, and the number of words of each sentence."""
        words = self.encode(self.word_gru, self.embedding(document), lengths)
        sentences, word_weights = self.word_attention(words, lengths)
        count = torch.tensor([len(sentences)])
        encoded = self.encode(self.sentence_gru, sentences[None], count)
        vector, sentence_weights = self.sentence_attention(encoded, count)
        return self.classifier(vector), word_weights, sentence_weights


def han():
    model = randomise(Han().double())
    document = torch.randint(0, Han.VOCABULARY, (3, 5))
    lengths = torch.tensor([5, 2, 4])
    logits, word_weights, sentence_weights = model(document, lengths)
    return model, {
        "document": document,
        "lengths": lengths,
        "logits": logits,
        "word_weights": word_weights,
        "sentence_weights": sentence_weights,
    }


def main():
    assert torch.__version__.split("+")[0] == TORCH, torch.__version__
    torch.manual_seed(SEED)
    here = pathlib.Path(__file__)
    cases = {
        "transformer-post-relu": translator("relu", False),
        "transformer-pre-gelu": translator("gelu", True),
        "gpt2": gpt(),
        "han": han(),
    }
    tensors = {}
    for name, (model, data) in cases.items():
        assert not any(tensor.isnan().any() for tensor in data.values()), name
        weights = {f"weights.{key}": tensor.float() for key, tensor in model.state_dict().items()}
        tensors |= {f"{name}.{key}": tensor for key, tensor in (weights | data).items()}
    path = here.with_suffix(".safetensors")
    metadata = {"torch": TORCH, "seed": str(SEED), "script": here.name}
    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(tensors, path, metadata)
    checkpoint = here.with_name("gpt2.pt")
    torch.save(cases["gpt2"][0].float().state_dict(), checkpoint)
    for file in (path, checkpoint):
        print(f"{file.name}: {file.stat().st_size} bytes")


main()
