"""A fake of the package `datasets` for tests: one small dataset in memory.

The dataset `missing` cannot be loaded.
"""

GOOD = {
    "text": "A good film.\nReally\tgood.",
    "label": 1,
    "score": 4.5,
    "checked": True,
    "photo": b"\x00\x01\x02",
    "tags": ["film"],
    "translation": {"en": "long time\nno see", "zh": "好久不见"},
}
BAD = {
    "text": 'Not "good".',
    "label": 0,
    "score": None,
    "checked": False,
    "photo": b"\xff",
    "tags": [],
    "translation": {"en": "hello", "zh": "你好"},
}
BLANK = {**BAD, "text": None, "translation": {"en": "thanks", "zh": None}}

SPLITS = {"train": [GOOD, BAD, BLANK], "validation": [BAD, GOOD], "test.hard": [GOOD]}


class Table:
    """The used part of the interface of an Arrow table."""

    def __init__(self, rows):
        self.rows = rows
        self.column_names = list(rows[0])

    def flatten(self):
        def flat(row):
            for name, value in row.items():
                if isinstance(value, dict):
                    yield from ((f"{name}.{inner}", cell) for inner, cell in value.items())
                else:
                    yield name, value

        return Table([dict(flat(row)) for row in self.rows])

    def to_pylist(self):
        return self.rows


class Dataset:
    def __init__(self, rows):
        self.rows = rows

    def with_format(self, name):
        assert name == "arrow"
        return self

    def iter(self, batch_size):
        assert batch_size > len(self.rows)
        yield Table(self.rows)


def load_dataset(name, subset, cache_dir):
    if name == "missing":
        raise FileNotFoundError(f"Dataset '{name}' doesn't exist on the Hub")
    return {split: Dataset(rows) for split, rows in SPLITS.items()}
