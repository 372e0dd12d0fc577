"""Measure one pass of a model with PyTorch, in the same way as zoo-bench.

`cargo xtask bench --suite models --vs pytorch` starts one process per case. The models are
optimised eager PyTorch: fused Adam, scaled_dot_product_attention, fused projections, preallocated
caches. torch.compile is not used, because our side is not traced either. Training must decrease
the loss; generated tokens are checked against a full forward pass. Logits, or loss and gradients,
are compared with the same model in float64.
"""

import copy
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

from classifier import Classifier
from gpt import Gpt
from han import Han
from sampling import DTYPES, Meter, describe, parser, sample, sync
from seq2seq import Seq2Seq
from transformer import Transformer

MODELS = {
    "han": Han,
    "transformer": Transformer,
    "seq2seq": Seq2Seq,
    "gpt": Gpt,
    "classifier": Classifier,
}
# As in zoo-bench.
LEARNING_RATE = 1e-3
STEPS = 8
# Relative to float64, as in zoo-bench.
TOLERANCE = {"f32": 1e-3, "f16": 2e-2, "bf16": 1e-1}


def main():
    command_line = parser(__doc__, ["forward", "train", "generate"])
    command_line.add_argument("--setup", type=pathlib.Path, required=True)
    arguments = command_line.parse_args()
    setup = json.loads(arguments.setup.read_text())
    device = torch.device(arguments.device)
    torch.manual_seed(0)

    Case(small(setup), arguments, device).run_once()  # start threads and load kernels
    meter = Meter(device)
    case = Case(setup, arguments, device)
    # The optimizer has its moments from the second step on.
    peak = meter.peak(lambda: [case.run_once() for _ in range(2)])
    problem, checked = case.check()
    outcome = {"wrong": {"error": None, "detail": problem}}
    if problem is None:
        seconds = sample(case.run_once, arguments)
        problem = case.check_last_loss()
        outcome = {"wrong": {"error": None, "detail": problem}}
    if problem is None:
        error, problem, compared = case.compare_with_float64(TOLERANCE[arguments.dtype])
        outcome = {"wrong": {"error": error if math.isfinite(error) else None, "detail": problem}}
    if problem is None:
        measured = {"seconds": seconds, "peak": peak, "error": error, "checked": f"{checked}; {compared}"}
        outcome = {"measured": measured}
    report = {
        "device": describe(device),
        "parameters": sum(p.numel() for p in case.model.parameters()),
        "outcome": outcome,
    }
    print(json.dumps(report))


def small(setup):
    """The same model with minimal sizes, for warm-up."""
    minimal = {"batch": 1, "vocabulary": 16, "d_hidden": 16, "layers": 1}
    n = setup["sentences"] * 2
    lengths = {"n": n, "prompt": n - 1 if setup["model"] == "gpt" else n, "generated": 1}
    return {**setup, **minimal, **lengths}


class Case:
    def __init__(self, setup, arguments, device):
        self.setup, self.device = setup, device
        self.run_once = {"train": self.train, "forward": self.forward, "generate": self.generate}[arguments.measured_pass]
        self.model = MODELS[setup["model"]](setup).to(device, DTYPES[arguments.dtype])
        self.is_training = arguments.measured_pass == "train"
        self.model.train(self.is_training)
        self.inputs, self.targets = self.model.batch(self.random_tokens)
        if self.is_training:
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE, fused=True)
        self.loss = None

    def random_tokens(self, *shape, below=None):
        return torch.randint(below or self.setup["vocabulary"], shape, device=self.device)

    def train(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = self.compute_loss(self.model)
        self.loss.backward()
        self.optimizer.step()
        sync(self.device)

    def forward(self):
        with torch.inference_mode():
            logits = self.model(*self.inputs)
        sync(self.device)
        return logits

    def generate(self):
        with torch.inference_mode():
            generated = self.model.generate(*self.model.prompt(self.inputs))
        sync(self.device)
        return generated

    def check(self):
        """Return (what is wrong or None, what was checked)."""
        if self.is_training:
            return self.check_training()
        result = self.run_once()
        if self.run_once == self.generate:
            return self.check_generated(result)
        if not result.isfinite().all():
            return "a logit is not finite", None
        return None, f"{' x '.join(map(str, result.shape))} finite logits"

    def check_training(self):
        self.train()
        first = self.loss.item()
        for _ in range(STEPS):
            self.train()
        last = self.loss.item()
        losses = f"loss {first:.3f} -> {last:.3f} in {STEPS} steps"
        if not (math.isfinite(first) and last < first):
            return losses, None
        return None, losses

    def check_generated(self, generated):
        batch, new = self.setup["batch"], self.setup["generated"]
        if list(generated.shape) != [batch, new]:
            return f"generated {list(generated.shape)} tokens, expected {batch} x {new}", None
        with torch.inference_mode():
            logits = self.model.generated_logits(self.model.prompt(self.inputs), generated).float()
        spread = (logits.max() - logits.min()).item()
        gap = (logits.max(-1).values - logits.gather(-1, generated[..., None])[..., 0]).max().item() / spread
        # Near ties may be broken differently because of rounding.
        if not gap < 1e-3:
            return f"a token is {gap:.1e} of the logits' range below the argmax of a forward pass", None
        return None, f"{batch} x {new} tokens, each the argmax of a forward pass"

    def compare_with_float64(self, tolerance):
        """Return (maximum error, what is wrong or None, what was compared)."""
        names = ["loss", "gradients", "loss after a step"] if self.is_training else ["logits"]
        actual, expected = self.results(self.model), self.results(copy.deepcopy(self.model).double())
        errors = [((a.double() - b).norm() / b.norm()).item() for a, b in zip(actual, expected)]
        worst = max(range(len(errors)), key=lambda i: math.inf if math.isnan(errors[i]) else errors[i])
        error, n = errors[worst], self.setup["n"]
        if not error <= tolerance:
            detail = f"{names[worst]}: error {error:.1e} against the reference (float64) at n = {n}; tolerance {tolerance:.0e}"
            return error, detail, None
        return error, None, f"{', '.join(names)} within {error:.1e} of the reference at n = {n}"

    def results(self, model):
        """Logits; in training, the loss, all gradients, and the loss after an optimizer step."""
        if not self.is_training:
            with torch.inference_mode():
                return [model(*self.inputs)]
        model = copy.deepcopy(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
        loss = self.compute_loss(model)
        optimizer.zero_grad()
        loss.backward()
        gradients = torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])
        optimizer.step()
        return [loss.detach(), gradients, self.compute_loss(model).detach()]

    def compute_loss(self, model):
        return F.cross_entropy(model(*self.inputs).flatten(0, -2), self.targets.flatten())

    def check_last_loss(self):
        if self.is_training and not math.isfinite(self.loss.item()):
            return f"the loss is {self.loss.item()}"
        return None


if __name__ == "__main__":
    sys.exit(main())
