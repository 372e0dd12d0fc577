"""Measures one attention case with PyTorch, the way zoo-bench measures ours.

`cargo xtask bench --vs pytorch` runs this, one process a case. It reads the
inputs that xtask wrote, checks its own result against PyTorch in float64, and
prints one line of JSON.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F

from sampling import DTYPES, Meter, describe, parser, sample, wait_for


def main():
    arguments = parse()
    problem = json.loads((arguments.inputs / "problem.json").read_text())
    device = torch.device(arguments.device)
    case = Case(arguments, problem, device)

    case.run_once(small=True)  # start threads and load kernels
    meter = Meter(device)
    case.load()
    peak = meter.peak_of(case.run_once)
    seconds = sample(case.run_once, arguments)
    error = case.error()
    print(
        json.dumps(
            {
                "device": describe(device),
                "outcome": {"measured": {"seconds": seconds, "peak": peak, "error": error}},
            }
        )
    )


def parse():
    known = parser(__doc__, ["forward", "train"])
    known.add_argument("--inputs", type=pathlib.Path, required=True)
    return known.parse_args()


class Case:
    def __init__(self, arguments, problem, device):
        self.folder = arguments.inputs
        self.problem = problem
        self.device = device
        self.dtype = DTYPES[arguments.dtype]
        self.sdpa = arguments.way == "sdpa"
        self.train = arguments.direction == "train"

    def load(self):
        read = lambda name, shape: self.read(name, torch.float32, shape).to(self.device, self.dtype)
        problem = self.problem
        self.query = read("query", problem["query"]).requires_grad_(self.train)
        self.key = read("key", problem["key"]).requires_grad_(self.train)
        self.value = read("value", problem["value"]).requires_grad_(self.train)
        context = [*problem["query"][:3], problem["value"][3]]
        self.upstream = read("upstream", context) if self.train else None
        self.visible = None
        if problem["dense_mask"]:
            scores = [*problem["query"][:3], problem["key"][2]]
            # Ours hides where it is true; PyTorch's shows.
            self.visible = ~self.read("hidden", torch.bool, scores).to(self.device)

    def read(self, name, dtype, shape):
        data = bytearray((self.folder / name).read_bytes())
        return torch.frombuffer(data, dtype=dtype).reshape(shape)

    def attend(self, query, key, value, visible, sdpa):
        grouped = query.shape[1] != key.shape[1]
        if sdpa:
            return F.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=visible,
                is_causal=self.problem["causal"],
                scale=self.problem["scale"],
                enable_gqa=grouped,
            )
        if grouped:
            times = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
        scores = query @ key.transpose(-2, -1) * self.problem["scale"]
        if self.problem["causal"]:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        if visible is not None:
            scores = scores.masked_fill(~visible, -math.inf)
        return scores.softmax(-1) @ value

    def run_once(self, small=False):
        if small:
            tensors = [torch.ones(1, 1, 8, 8, dtype=self.dtype, device=self.device) for _ in range(4)]
            query, key, value, upstream = tensors
            query.requires_grad_(self.train)
            visible = None
        else:
            query, key, value, upstream = self.query, self.key, self.value, self.upstream
            visible = self.visible
        if not self.train:
            with torch.no_grad():
                result = self.attend(query, key, value, visible, self.sdpa)
        else:
            result = self.attend(query, key, value, visible, self.sdpa)
            wanted = [query] if small else [query, key, value]
            # The same loss as ours: a product and a sum, and back through both.
            result = torch.autograd.grad((result * upstream).sum(), wanted)
        wait_for(self.device)
        return result

    def error(self):
        """The worst error relative to each tensor's largest number, against float64."""
        rows = torch.tensor(self.problem["queries_to_check"], device=self.device)
        heads = self.problem["query"][1]
        seq_q = self.problem["query"][2]
        exact = [t.detach().double().requires_grad_(self.train) for t in (self.query, self.key, self.value)]
        query, key, value = exact
        times = heads // key.shape[1]
        mine = self.attend(self.query, self.key, self.value, self.visible, self.sdpa)
        flat = lambda tensor: tensor.reshape(-1, tensor.shape[-1])
        wanted, chosen_upstream = [], None
        if self.train:
            keep = torch.zeros(len(flat(self.upstream)), 1, dtype=self.dtype, device=self.device)
            keep[rows] = 1
            chosen_upstream = (flat(self.upstream) * keep).reshape(self.upstream.shape)
        # Row by row groups of one head, so that float64 never holds a whole matrix.
        contexts, total = [], 0
        for example in range(query.shape[0]):
            for head in range(heads):
                first = (example * heads + head) * seq_q
                here = rows[(rows >= first) & (rows < first + seq_q)] - first
                k, v = key[example, head // times], value[example, head // times]
                scores = query[example, head, here] @ k.T * self.problem["scale"]
                if self.problem["causal"]:
                    places = torch.arange(k.shape[0], device=self.device)
                    scores = scores.masked_fill(places[None] > here[:, None], -math.inf)
                if self.visible is not None:
                    scores = scores.masked_fill(~self.visible[example, head, here], -math.inf)
                context = scores.softmax(-1).nan_to_num(0.0) @ v
                contexts.append(context)
                if self.train:
                    total = total + (context * chosen_upstream[example, head, here].double()).sum()
        worst = relative(flat(mine.detach())[rows], torch.cat(contexts).detach())
        if self.train:
            mine = torch.autograd.grad(mine, [self.query, self.key, self.value], chosen_upstream)
            for got, want in zip(mine, torch.autograd.grad(total, exact)):
                worst = max(worst, relative(got, want))
        # JSON has no word for NaN, which PyTorch gives a query that sees nothing.
        return worst if math.isfinite(worst) else None


def relative(got, want):
    return ((got.double() - want).abs().max() / want.abs().max()).item()


if __name__ == "__main__":
    main()
