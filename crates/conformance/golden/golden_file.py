"""Writes a safetensors file: the length of a JSON header, the header, the numbers.

Needs nothing but PyTorch, not even NumPy. https://github.com/huggingface/safetensors
"""

import json
import struct

import torch

_TYPES = {
    torch.float32: ("F32", "f"),
    torch.float64: ("F64", "d"),
    torch.int64: ("I64", "q"),
    torch.bool: ("BOOL", "?"),
}


def save(path, tensors, metadata):
    """Writes `tensors`, a dict of names, with `metadata`, a dict of strings."""
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        word, letter = _TYPES[tensor.dtype]
        numbers = tensor.detach().flatten().tolist()
        raw = struct.pack(f"<{len(numbers)}{letter}", *numbers)
        header[name] = {
            "dtype": word,
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    head = json.dumps(header).encode()
    # Numbers begin at a multiple of eight bytes.
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + data)
