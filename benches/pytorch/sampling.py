"""Time samples and peak memory, measured as in zoo-bench."""

import argparse
import pathlib
import time

import torch

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
MIN_SAMPLES = 10


def parser(description, passes):
    """Common arguments of attention.py and model.py."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--pass", dest="measured_pass", choices=passes, default="forward")
    parser.add_argument("--warm-up", type=float, default=0.3)
    parser.add_argument("--min-time", type=float, default=1.0)
    parser.add_argument("--max-time", type=float, default=10.0)
    return parser


def sample(run_once, arguments):
    """Time of each run in seconds, after a warm-up."""
    end = time.perf_counter() + arguments.warm_up
    while time.perf_counter() < end:
        run_once()
    seconds = []
    begin = time.perf_counter()
    while True:
        start = time.perf_counter()
        run_once()
        now = time.perf_counter()
        seconds.append(now - start)
        if len(seconds) >= MIN_SAMPLES and now - begin >= arguments.min_time:
            return seconds
        if now - begin >= arguments.max_time:
            return seconds


class Meter:
    """Peak memory above the level before the inputs were created."""

    def __init__(self, device):
        self.device = device
        self.level = resident("VmRSS") if device.type == "cpu" else None

    def peak(self, run):
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            run()
            return {"bytes": torch.cuda.max_memory_allocated(self.device), "how": "allocator"}
        try:
            pathlib.Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            run()
            return None
        run()
        if self.level is None:
            return None
        return {"bytes": max(0, resident("VmHWM") - self.level), "how": "resident"}


def resident(field):
    """A field of /proc/self/status in bytes; None if not available."""
    status = pathlib.Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")]
    return sizes[0] if sizes else None


def sync(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def describe(device):
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return f"PyTorch {torch.__version__} on {name}, {torch.get_num_threads()} threads"
