"""Measure one attention case with PyTorch, in the same way as zoo-bench.

`cargo xtask bench --vs pytorch` starts one process per case. It reads the inputs written by
xtask, checks the result against PyTorch in float64, and prints one line of JSON.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F

from sampling import DTYPES, Meter, describe, parser, sample, sync


def main():
    arguments = parse()
    problem = json.loads((arguments.inputs / "problem.json").read_text())
    device = torch.device(arguments.device)
    case = Case(arguments, problem, device)

    case.run_once(small=True)  # start threads and load kernels
    meter = Meter(device)
    case.load()
    peak = meter.peak(case.run_once)
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
    arguments = parser(__doc__, ["forward", "train"])
    arguments.add_argument("--inputs", type=pathlib.Path, required=True)
    return arguments.parse_args()


class Case:
    def __init__(self, arguments, problem, device):
        self.folder = arguments.inputs
        self.problem = problem
        self.device = device
        self.dtype = DTYPES[arguments.dtype]
        self.sdpa = arguments.implementation == "sdpa"
        self.train = arguments.measured_pass == "train"

    def load(self):
        read = lambda name, shape: self.read(name, torch.float32, shape).to(self.device, self.dtype)
        problem = self.problem
        self.query = read("query", problem["query"]).requires_grad_(self.train)
        self.key = read("key", problem["key"]).requires_grad_(self.train)
        self.value = read("value", problem["value"]).requires_grad_(self.train)
        context = [*problem["query"][:3], problem["value"][3]]
        self.output_grad = read("upstream", context) if self.train else None
        self.visible = None
        if problem["dense_mask"]:
            scores = [*problem["query"][:3], problem["key"][2]]
            # True means masked in our mask and visible in that of PyTorch.
            self.visible = ~self.read("mask", torch.bool, scores).to(self.device)

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
            group = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        scores = query @ key.transpose(-2, -1) * self.problem["scale"]
        if self.problem["causal"]:
            future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        if visible is not None:
            scores = scores.masked_fill(~visible, -math.inf)
        return scores.softmax(-1) @ value

    def run_once(self, small=False):
        if small:
            tensors = [torch.ones(1, 1, 8, 8, dtype=self.dtype, device=self.device) for _ in range(4)]
            query, key, value, output_grad = tensors
            query.requires_grad_(self.train)
            visible = None
        else:
            query, key, value, output_grad = self.query, self.key, self.value, self.output_grad
            visible = self.visible
        if not self.train:
            with torch.no_grad():
                result = self.attend(query, key, value, visible, self.sdpa)
        else:
            result = self.attend(query, key, value, visible, self.sdpa)
            inputs = [query] if small else [query, key, value]
            # The same loss as in zoo-bench: sum(output * output_grad).
            result = torch.autograd.grad((result * output_grad).sum(), inputs)
        sync(self.device)
        return result

    def error(self):
        """Maximum error against float64, relative to the largest element of each tensor."""
        rows = torch.tensor(self.problem["queries_to_check"], device=self.device)
        heads = self.problem["query"][1]
        seq_q = self.problem["query"][2]
        exact = [t.detach().double().requires_grad_(self.train) for t in (self.query, self.key, self.value)]
        query, key, value = exact
        group = heads // key.shape[1]
        actual = self.attend(self.query, self.key, self.value, self.visible, self.sdpa)
        flat = lambda tensor: tensor.reshape(-1, tensor.shape[-1])
        sampled_grad = None
        if self.train:
            keep = torch.zeros(len(flat(self.output_grad)), 1, dtype=self.dtype, device=self.device)
            keep[rows] = 1
            sampled_grad = (flat(self.output_grad) * keep).reshape(self.output_grad.shape)
        # Head by head and only the sampled rows, to limit the memory of float64.
        contexts, total = [], 0
        for example in range(query.shape[0]):
            for head in range(heads):
                first = (example * heads + head) * seq_q
                local = rows[(rows >= first) & (rows < first + seq_q)] - first
                k, v = key[example, head // group], value[example, head // group]
                scores = query[example, head, local] @ k.T * self.problem["scale"]
                if self.problem["causal"]:
                    positions = torch.arange(k.shape[0], device=self.device)
                    scores = scores.masked_fill(positions[None] > local[:, None], -math.inf)
                if self.visible is not None:
                    scores = scores.masked_fill(~self.visible[example, head, local], -math.inf)
                context = scores.softmax(-1).nan_to_num(0.0) @ v
                contexts.append(context)
                if self.train:
                    total = total + (context * sampled_grad[example, head, local].double()).sum()
        worst = relative_error(flat(actual.detach())[rows], torch.cat(contexts).detach())
        if self.train:
            actual = torch.autograd.grad(actual, [self.query, self.key, self.value], sampled_grad)
            for gradient, expected in zip(actual, torch.autograd.grad(total, exact)):
                worst = max(worst, relative_error(gradient, expected))
        # PyTorch returns NaN for fully masked rows, which JSON cannot represent.
        return worst if math.isfinite(worst) else None


def relative_error(actual, expected):
    return ((actual.double() - expected).abs().max() / expected.abs().max()).item()


if __name__ == "__main__":
    main()
