"""Measure one attention mechanism with PyTorch, in the same way as zoo-bench.

`cargo xtask bench --vs pytorch` starts one process per case. It reads the inputs written by
xtask, checks the result, and prints one line of JSON. The check has two parts:

- The same function in float64 must equal the results of the oracle, which xtask writes: the
  context of a sample of queries, and the gradients of their loss. Both are float64, so another
  formula, mask or parameter is an error.
- The error of the measured dtype is that against float64 with inputs of this dtype.
"""

import dataclasses
import json
import math
import pathlib

import torch

from mechanisms import MECHANISMS, RECURRENCES, Call, prepare
from sampling import DTYPES, Meter, describe, parser, sample, sync

# Rounding errors of float64 are below 1e-12, those of another formula far above.
DEFINITION_LIMIT = 1e-9
# Errors above these are not rounding errors.
ERROR_LIMIT = {"f32": 1e-3, "f16": 5e-2, "bf16": 2e-1}
RESULTS = ["context", "d_query", "d_key", "d_value"]
# In half precision, rounding changes which keys these select.
SELECTS_KEYS = ["hard", "local-p", "moba", "native-sparse"]


def main():
    arguments = parse()
    problem = json.loads((arguments.inputs / "problem.json").read_text())
    device = torch.device(arguments.device)
    case = Case(arguments, problem, device)

    case.run_small()
    meter = Meter(device)
    case.load()
    peak = meter.peak(case.run_once)
    seconds = sample(case.run_once, arguments)
    print(json.dumps({"device": describe(device), "outcome": case.outcome(seconds, peak)}))


def parse():
    arguments = parser(__doc__, ["forward", "train"])
    arguments.add_argument("--inputs", type=pathlib.Path, required=True)
    return arguments.parse_args()


class Case:
    def __init__(self, arguments, problem, device):
        self.folder = arguments.inputs
        self.problem = problem
        self.device = device
        self.dtype_name = arguments.dtype
        self.dtype = DTYPES[arguments.dtype]
        self.train = arguments.measured_pass == "train"
        self.kind = problem["mechanism"]["kind"]
        self.attend = MECHANISMS[self.kind]

    def read(self, name, dtype, shape):
        data = bytearray((self.folder / name).read_bytes())
        return torch.frombuffer(data, dtype=dtype).reshape(shape).to(self.device)

    def inputs(self, *dtypes):
        """Query, key, value and output gradient, converted to each of the dtypes in turn."""
        problem = self.problem
        context = [*problem["query"][:3], problem["value"][3]]
        shapes = {name: problem[name] for name in ("query", "key", "value")}
        for name, shape in (shapes | {"output_grad": context}).items():
            # Shared by the mechanisms.
            tensor = self.read(f"../{name}", torch.float32, shape)
            for dtype in dtypes:
                tensor = tensor.to(dtype)
            yield tensor

    def call(self, *dtypes):
        problem = self.problem
        call = Call(problem["mechanism"], problem["causal"], problem["scale"])
        if problem["dense_mask"]:
            scores = [*problem["query"][:3], problem["key"][2]]
            # True means masked in our mask and visible in that of PyTorch.
            call.visible = ~self.read("../mask", torch.bool, scores)
        for name, shape in problem["parameters"].items():
            tensor = self.read(name, torch.float32, shape)
            for dtype in dtypes:
                tensor = tensor.to(dtype)
            setattr(call, name, tensor)
        if "blocks" in problem:
            call.blocks = torch.tensor(problem["blocks"], device=self.device)
        if "decays" in problem:
            call.decay = torch.tensor(problem["decays"], dtype=torch.float64, device=self.device)
        return call

    def load(self):
        query, key, value, output_grad = self.inputs(self.dtype)
        call = self.call(self.dtype)
        self.prepared, key, value = prepare(self.kind, call, query, key, value)
        self.tensors = [x.requires_grad_(self.train) for x in (query, key, value)]
        self.output_grad = output_grad if self.train else None

    def run_small(self):
        """Starts threads and loads kernels."""
        ones = lambda *shape: torch.ones(shape, dtype=self.dtype, device=self.device)
        # Landmarks and projected keys are never causal.
        causal = self.kind not in ("nystrom", "linformer")
        call = Call(self.problem["mechanism"], causal, vector=ones(1, 8), matrix=ones(1, 8, 8))
        call.directions = ones(1, 1, 1, 8) if self.kind == "lsh" else ones(8, 8)
        call.blocks = torch.ones(1, 1, dtype=torch.bool, device=self.device)
        call.decay = torch.full([1], 0.9, dtype=torch.float64, device=self.device)
        call.sink, call.log_decay, call.strength = ones(1), -ones(1, 1, 8, 1), ones(1, 1, 8, 1)
        call.table = ones(1, call.keys.get("num_buckets", 1))
        call.branch_gates = ones(1, 1, 8, 3)
        call.differential, call.projection = ones(4, 4), ones(2, 4, 8)
        query, key, value = (ones(1, 1, 8, 8) for _ in range(3))
        call, key, value = prepare(self.kind, call, query, key, value)
        self.run(call, [x.requires_grad_(self.train) for x in (query, key, value)], ones(1, 1, 8, 8))

    def run_once(self):
        return self.run(self.prepared, self.tensors, self.output_grad)

    def run(self, call, tensors, output_grad):
        if not self.train:
            with torch.no_grad():
                result = self.attend(call, *tensors)
        else:
            context = self.attend(call, *tensors)
            # The same loss as in zoo-bench: sum(output * output_grad).
            loss = (context * output_grad).sum()
            result = torch.autograd.grad(loss, tensors, allow_unused=True)
        sync(self.device)
        return result

    def outcome(self, seconds, peak):
        expected = self.expected()
        exact = self.solve_by_head(torch.float64)
        definition = relative_error(exact, expected)
        if not definition <= DEFINITION_LIMIT:
            detail = f"in float64, it differs from the oracle by {definition:.1e}"
            return wrong(definition, detail)
        measured = {"seconds": seconds, "peak": peak, "error": None}
        measured["checked"] = f"in float64, it equals the oracle to {definition:.0e}"
        if self.dtype == torch.float32 or self.kind not in SELECTS_KEYS:
            if self.dtype != torch.float32:
                exact = self.solve_by_head(self.dtype, torch.float64)
            error = relative_error(self.solve(), exact)
            # In f32, rounding may still move a key across the edge of a window.
            limit = 5e-2 if self.kind == "local-p" else ERROR_LIMIT[self.dtype_name]
            if not error <= limit:
                return wrong(error, f"its error against float64 is {error:.1e}, above {limit:.0e}")
            measured["error"] = error
        return {"measured": measured}

    def expected(self):
        """The sampled rows of the results, by the oracle."""
        names = RESULTS if self.train else RESULTS[:1]
        return [self.read(name, torch.float64, [len(self.rows(name)), -1]) for name in names]

    def rows(self, name):
        return torch.tensor(self.problem["rows"][name], device=self.device)

    def sampled_rows(self, results):
        names = RESULTS[: len(results)]
        return [x.flatten(0, 2)[self.rows(name)] for name, x in zip(names, results)]

    def fixed_call(self, *dtypes):
        """The call; in the measured dtype, with the hashes of the oracle."""
        call = self.call(*dtypes)
        if self.problem["hashes"] and dtypes[0] == self.dtype:
            hashes = [*self.problem["query"][:3], self.problem["mechanism"]["n_hashes"]]
            call.hashes = self.read("hashes", torch.float32, hashes).long()
        return call

    def noise(self, dtype, first, batch, heads):
        """The noise of the oracle for some heads; zero except for the sampled queries."""
        if not self.problem["noise"]:
            return None
        seq_q, seq_k = self.problem["query"][2], self.problem["key"][2]
        rows = self.rows("context")
        given = self.read("noise", torch.float32, [len(rows), seq_k])
        local = rows - first * seq_q
        is_local = (local >= 0) & (local < batch * heads * seq_q)
        noise = torch.zeros(batch * heads * seq_q, seq_k, dtype=dtype, device=self.device)
        noise[local[is_local]] = given[is_local].to(dtype)
        return noise.reshape(batch, heads, seq_q, seq_k)

    def masked_grad(self, output_grad):
        """The output gradient, zero except for the sampled queries."""
        flat = output_grad.reshape(-1, output_grad.shape[-1])
        keep = torch.zeros(len(flat), 1, dtype=flat.dtype, device=self.device)
        keep[self.rows("context")] = 1
        return (flat * keep).reshape(output_grad.shape)

    def differentiate(self, call, tensors, output_grad):
        """The context and the gradients of the inputs, as the measured pass computes them."""
        query, key, value = (x.detach().requires_grad_(self.train) for x in tensors)
        call, cached_key, cached_value = prepare(self.kind, call, query, key, value)
        with torch.set_grad_enabled(self.train):
            context = self.attend(call, query, cached_key, cached_value)
        if not self.train:
            return [context]
        inputs = [query, key, value]
        gradients = torch.autograd.grad(context, inputs, output_grad, allow_unused=True)
        filled = [torch.zeros_like(x) if d is None else d for x, d in zip(inputs, gradients)]
        return [context.detach(), *filled]

    def solve(self):
        """The results in the measured dtype."""
        query, key, value, output_grad = self.inputs(self.dtype)
        call = self.fixed_call(self.dtype)
        call.noise = self.noise(self.dtype, 0, *query.shape[:2])
        results = self.differentiate(call, [query, key, value], self.masked_grad(output_grad))
        return self.sampled_rows(results)

    def solve_by_head(self, *dtypes):
        """The results in the last of the dtypes, head by head to limit the memory.

        Query heads that select the same keys are solved together.
        """
        query, key, value, output_grad = self.inputs(*dtypes)
        output_grad = self.masked_grad(output_grad)
        call = self.fixed_call(*dtypes)
        batch, heads = query.shape[:2]
        group = heads // key.shape[1]
        count = group if self.kind == "native-sparse" else 1
        totals = [torch.zeros_like(x) for x in (output_grad, query, key, value)]
        for example in range(batch):
            for head in range(0, heads, count):
                at = lambda x, heads: x[example : example + 1, heads]
                own, shared = slice(head, head + count), slice(head // group, head // group + 1)
                tensors = [at(query, own), at(key, shared), at(value, shared)]
                part = call.head(example, head)
                if call.branch_gates is not None:
                    part.branch_gates = at(call.branch_gates, own)
                if self.kind in RECURRENCES:
                    # Gates belong to key and value heads.
                    gates = call.head(example, head // group)
                    part.log_decay, part.strength = gates.log_decay, gates.strength
                part.noise = self.noise(query.dtype, example * heads + head, 1, 1)
                results = self.differentiate(part, tensors, at(output_grad, own))
                for total, part, of in zip(totals, results, (own, own, shared, shared)):
                    total[example, of] += part[0]
        return self.sampled_rows(totals[: len(results)])


def relative_error(actual, expected):
    """The largest error, relative to the largest element of each tensor."""
    errors = []
    for got, want in zip(actual, expected, strict=True):
        # A gradient whose terms cancel has no scale of its own.
        scale = max(want.abs().max().item(), 1e-3)
        errors.append((got.double() - want).abs().max().item() / scale)
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def wrong(error, detail):
    # JSON has no NaN and no infinity.
    return {"wrong": {"error": error if math.isfinite(error) else None, "detail": detail}}


if __name__ == "__main__":
    main()
