"""Measures one model in one pass with PyTorch, the way zoo-bench measures ours.

`cargo xtask bench --suite models --vs pytorch` runs this, one process a case. Models are plain
PyTorch, eager, written for speed: fused Adam, scaled_dot_product_attention, one matmul where
one will do, caches in place. Nothing is compiled (torch.compile), as nothing is traced on our
side. A step of training must lower the loss; what is generated is held against a whole forward
pass. Logits, or the loss and its gradients, are compared with those of the same model in float64.
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
from sampling import DTYPES, Meter, describe, parser, sample, wait_for
from seq2seq import Seq2Seq
from transformer import Transformer

MODELS = {
    "han": Han,
    "transformer": Transformer,
    "seq2seq": Seq2Seq,
    "gpt": Gpt,
    "classifier": Classifier,
}
# As zoo-bench has them.
LEARNING_RATE = 1e-3
LEAST_STEPS = 8
# How far results may be from those in float64, relative to these: as zoo-bench allows.
ALLOWED = {"f32": 1e-3, "f16": 2e-2, "bf16": 1e-1}


def main():
    known = parser(__doc__, ["forward", "train", "generate"])
    known.add_argument("--setup", type=pathlib.Path, required=True)
    arguments = known.parse_args()
    setup = json.loads(arguments.setup.read_text())
    device = torch.device(arguments.device)
    torch.manual_seed(0)

    Case(small(setup), arguments, device).run_once()  # start threads and load kernels
    meter = Meter(device)
    case = Case(setup, arguments, device)
    # The second step finds an optimizer that has its moments.
    peak = meter.peak_of(lambda: [case.run_once() for _ in range(2)])
    problem, checked = case.check()
    outcome = {"wrong": {"error": None, "detail": problem}}
    if problem is None:
        seconds = sample(case.run_once, arguments)
        problem = case.is_still_right()
        outcome = {"wrong": {"error": None, "detail": problem}}
    if problem is None:
        error, problem, compared = case.against_float64(ALLOWED[arguments.dtype])
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
    """The same model on next to nothing."""
    least = {"batch": 1, "vocabulary": 16, "d_hidden": 16, "layers": 1}
    n = setup["sentences"] * 2
    made = {"n": n, "prompt": n - 1 if setup["model"] == "gpt" else n, "generated": 1}
    return {**setup, **least, **made}


class Case:
    def __init__(self, setup, arguments, device):
        self.setup, self.device = setup, device
        self.run_once = {"train": self.train, "forward": self.forward, "generate": self.generate}[arguments.direction]
        self.model = MODELS[setup["model"]](setup).to(device, DTYPES[arguments.dtype])
        self.is_training = arguments.direction == "train"
        self.model.train(self.is_training)
        self.inputs, self.targets = self.model.batch(self.draw)
        if self.is_training:
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE, fused=True)
        self.loss = None

    def draw(self, *shape, below=None):
        return torch.randint(below or self.setup["vocabulary"], shape, device=self.device)

    def train(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = self.loss_of(self.model)
        self.loss.backward()
        self.optimizer.step()
        wait_for(self.device)

    def forward(self):
        with torch.inference_mode():
            logits = self.model(*self.inputs)
        wait_for(self.device)
        return logits

    def generate(self):
        with torch.inference_mode():
            made = self.model.generate(*self.model.prompt(self.inputs))
        wait_for(self.device)
        return made

    def check(self):
        """What is wrong, if anything is, and what was looked at."""
        if self.is_training:
            return self.check_training()
        result = self.run_once()
        if self.run_once == self.generate:
            return self.check_generated(result)
        if not result.isfinite().all():
            return "a result is not finite", None
        return None, f"{' x '.join(map(str, result.shape))} finite results"

    def check_training(self):
        self.train()
        first = self.loss.item()
        for _ in range(LEAST_STEPS):
            self.train()
        last = self.loss.item()
        told = f"loss {first:.3f} -> {last:.3f} in {LEAST_STEPS} steps"
        if not (math.isfinite(first) and last < first):
            return told, None
        return None, told

    def check_generated(self, made):
        batch, new = self.setup["batch"], self.setup["generated"]
        if list(made.shape) != [batch, new]:
            return f"{list(made.shape)} tokens, not {[batch, new]}", None
        with torch.inference_mode():
            said = self.model.said_of(self.model.prompt(self.inputs), made).float()
        spread = (said.max() - said.min()).item()
        short = (said.max(-1).values - said.gather(-1, made[..., None])[..., 0]).max().item() / spread
        # Where two are as likely but for rounding, either may be taken.
        if not short < 1e-3:
            return f"a token is {short:.1e} of all logits' spread below the best of a forward pass", None
        return None, f"{batch} x {new} tokens, each the best of a forward pass"

    def against_float64(self, allowed):
        """The largest error, what is wrong, if anything is, and what was compared."""
        names = ["loss", "gradients", "loss after a step"] if self.is_training else ["logits"]
        got, expected = self.results(self.model), self.results(copy.deepcopy(self.model).double())
        errors = [((a.double() - b).norm() / b.norm()).item() for a, b in zip(got, expected)]
        worst = max(range(len(errors)), key=lambda at: math.inf if math.isnan(errors[at]) else errors[at])
        error, n = errors[worst], self.setup["n"]
        if not error <= allowed:
            return error, f"{names[worst]} {error:.1e} away from the reference, float64, at n = {n}; {allowed:.0e} is allowed", None
        return error, None, f"{', '.join(names)} within {error:.1e} of the reference at n = {n}"

    def results(self, model):
        """The logits; in training the loss, all gradients, and the loss after a step along them."""
        if not self.is_training:
            with torch.inference_mode():
                return [model(*self.inputs)]
        model = copy.deepcopy(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
        loss = self.loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        gradients = torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])
        optimizer.step()
        return [loss.detach(), gradients, self.loss_of(model).detach()]

    def loss_of(self, model):
        return F.cross_entropy(model(*self.inputs).flatten(0, -2), self.targets.flatten())

    def is_still_right(self):
        if self.is_training and not math.isfinite(self.loss.item()):
            return f"the loss came to {self.loss.item()}"
        return None


if __name__ == "__main__":
    sys.exit(main())
