"""Writes reviews.db: a small data set as burn-dataset's importer leaves it.

    python reviews.py IMPORTER

IMPORTER is src/source/huggingface/importer.py of burn-dataset 0.22.1. Made on 2026-11-15 with
datasets 5.2.0, pyarrow 26.0.1, pandas 3.1.1 and SQLAlchemy 2.1.8 on Python 3.11.7. Texts are made up.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from datasets import ClassLabel, Dataset, Features, Translation, Value

FEATURES = Features(
    {
        "text": Value("string"),
        "label": ClassLabel(names=["bad", "good"]),
        "score": Value("float64"),
        "checked": Value("bool"),
        "photo": Value("binary"),
        "translation": Translation(languages=["en", "zh"]),
    }
)

GOOD = {
    "text": "A good film.\nReally\tgood.",
    "label": 1,
    "score": 4.5,
    "checked": True,
    "photo": b"\x00\x01\x02",
    "translation": {"en": "long time\nno see", "zh": "好久不见"},
}
BAD = {
    "text": "Not \"good\".",
    "label": 0,
    "score": None,
    "checked": False,
    "photo": b"\xff",
    "translation": {"en": "hello", "zh": "你好"},
}
BLANK = {**BAD, "text": None, "translation": {"en": "thanks", "zh": None}}

SPLITS = {"train": [GOOD, BAD, BLANK], "validation": [BAD, GOOD], "test.hard": [GOOD]}

with tempfile.TemporaryDirectory() as folder:
    card = "---\nconfigs:\n- config_name: default\n  data_files:\n"
    for split, rows in SPLITS.items():
        Dataset.from_list(rows, features=FEATURES).to_parquet(f"{folder}/{split}.parquet")
        card += f"  - split: {split}\n    path: {split}.parquet\n"
    Path(folder, "README.md").write_text(card + "---\n")
    database = Path(__file__).with_suffix(".db")
    database.unlink(missing_ok=True)
    command = [sys.executable, sys.argv[1], "--name", folder, "--file", str(database)]
    subprocess.run(command, check=True)
