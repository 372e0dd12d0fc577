"""Downloads a dataset of the Hugging Face Hub and writes it as files for training.

`cargo xtask hub` runs this program. The package `datasets` downloads and caches the dataset; it is
installed into a virtual environment in the cache folder if this Python does not have it. All fields
are written as JSON lines, unless flags select some. The matching `[data]` section of a config is
printed to standard output, everything else to standard error.
"""

import argparse
import datetime
import difflib
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

# The key of each split in a config, and its names on the Hub, most common first.
PARTS = {"train": ["train"], "valid": ["validation", "valid", "val", "dev"], "test": ["test"]}

CLASSES_SHOWN = 20
KNOWN_SHOWN = 50


class HubError(Exception):
    """An error that the user can fix."""


def unknown(what, got, known):
    """The message for an unknown name, with the closest one and all known ones."""
    known = list(known)
    nearest = difflib.get_close_matches(got, known, n=1)
    hint = f": did you mean {nearest[0]}?" if nearest else ""
    more = f" and {len(known) - KNOWN_SHOWN} more" if len(known) > KNOWN_SHOWN else ""
    return f'unknown {what} "{got}"{hint}\n  known: {", ".join(known[:KNOWN_SHOWN])}{more}'


def printable(text):
    """The text with control characters escaped, except line feeds and tabs."""

    def is_control(character):
        is_joiner = character in "\u200c\u200d\u200e\u200f\u061c"
        return unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") and not is_joiner

    escaped = (
        f"\\u{{{ord(character):x}}}" if character not in "\n\t" and is_control(character) else character
        for character in text
    )
    return "".join(escaped)


# Values


def plain(value):
    """A value of a row as JSON; booleans become integers, like class labels.

    Bytes and lists are unchanged, and are not written.
    """
    match value:
        case bool():
            return int(value)
        case float() if not math.isfinite(value):
            return None
        case None | int() | float() | str() | bytes() | list() | dict():
            return value
        case datetime.datetime():
            return value.isoformat(sep=" ")
        case _:
            return str(value)


def kind(value):
    """The type of a value, for the summary and to guess the roles of fields."""
    match value:
        case None:
            return "missing"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "text"
        case bytes():
            return "bytes"
        case _:
            return "list"


def is_written(kind):
    return kind not in ("bytes", "list")


def as_text(value):
    """The value as a string."""
    is_integer = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_integer else str(value)


# Formats


@dataclass
class Format:
    """The file format: `needs` maps the role of a field to its name."""

    extension: str
    # `data.kind` of the config; guessed if all fields are written.
    kind: str | None
    needs: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_arguments(cls, arguments):
        if arguments.source:
            needs = {"source": arguments.source, "target": arguments.target}
            return cls("tsv", "parallel", needs)
        if arguments.label:
            return cls("jsonl", "labelled", {"label": arguments.label, "text": arguments.text})
        if arguments.text:
            return cls("txt", "plain", {"text": arguments.text})
        return cls("jsonl", None)

    def encode(self, row, split, number):
        """The row as text of the file, or None if a required field is blank.

        The second value is whether tabs or line breaks were replaced by spaces.
        """
        texts = []
        for name in self.needs.values():
            if name not in row:
                raise HubError(f"split {split}: {unknown('field', name, row)}")
            value = row[name]
            if not is_written(kind(value)):
                type_name = f"{len(value)} bytes" if isinstance(value, bytes) else "a list"
                raise HubError(f"split {split}, row {number}: {name} is {type_name}, not text")
            if value is None or not as_text(value).strip():
                return None, False
            texts.append(as_text(value))
        match self.extension:
            case "tsv":
                # Tabs and line breaks are separators of the file.
                stripped = [text.strip() for text in texts]
                replaced = [re.sub("\r\n|[\r\n\t]", " ", text) for text in stripped]
                return "\t".join(replaced) + "\n", replaced != stripped
            case "txt":
                return texts[0].rstrip("\n") + "\n", False
            case _:
                cells = {name: value for name, value in row.items() if is_written(kind(value))}
                return json.dumps(cells, ensure_ascii=False, separators=(",", ":")) + "\n", False


# Splits


def split_choice(text):
    """Parses `valid=dev`; an empty name skips the split."""
    part, equals, split = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError("expected PART=NAME, for example valid=validation")
    if part not in PARTS:
        raise argparse.ArgumentTypeError(unknown("part", part, PARTS))
    return part, split


def choose_splits(choices, splits):
    """The split of each part: the selected one, or the one with a common name."""
    # The last choice of a part wins, as for flags.
    choices, chosen = dict(choices), {}
    for part, common in PARTS.items():
        found = [name for name in common if name in splits]
        name = choices.get(part, found[0] if found else "train" if part == "train" else "")
        if name and name not in splits:
            message = unknown("split", name, splits)
            raise HubError(f"{message}\n  help: select a split with --split {part}=NAME")
        if name:
            chosen[part] = name
    return chosen


# Files


@dataclass
class SplitSummary:
    """Statistics of a written split."""

    part: str
    path: Path
    rows: int = 0
    blank: int = 0
    replaced: int = 0
    # The kind of each field.
    fields: dict[str, str] = field(default_factory=dict)
    classes: set[str] = field(default_factory=set)

    def observe(self, row):
        for name, value in row.items():
            known, current = self.fields.get(name, "missing"), kind(value)
            # A field of integers and floats is a number.
            if known == "missing" or current in ("number", "bytes", "list"):
                self.fields[name] = current

    def summary(self):
        lines = [f"{self.path}: {count(self.rows)}"]
        if self.blank:
            lines.append(f"  {count(self.blank)} skipped: a field is blank")
        if self.replaced:
            lines.append(f"  {count(self.replaced)} with tabs or line breaks replaced by spaces")
        fields = (
            f"{name} ({kind}{'' if is_written(kind) else ', not written'})"
            for name, kind in self.fields.items()
        )
        lines.append(f"  fields: {', '.join(fields)}")
        if len(self.classes) > CLASSES_SHOWN:
            lines.append(f"  classes: {len(self.classes)}")
        elif self.classes:
            lines.append(f"  classes: {', '.join(sorted(self.classes))}")
        return "\n".join(lines)


def count(rows):
    return f"{rows} row{'' if rows == 1 else 's'}"


def refuse_existing(folder, format):
    """Fails if a file of any part exists; called before anything slow."""
    for part in PARTS:
        path = folder / f"{part}.{format.extension}"
        if path.exists():
            raise HubError(
                f"{path} already exists\n"
                "  help: choose another --to, or replace it with --overwrite"
            )


def write(data, splits, format, folder):
    """Writes a file for each part; they are renamed to their final names when all are complete."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = {part: folder / f".{part}-{os.getpid()}" for part in splits}
    try:
        summaries = []
        for part, split in splits.items():
            summary = SplitSummary(part, folder / f"{part}.{format.extension}")
            write_split(data[split], split, format, partial[part], summary)
            summaries.append(summary)
        for summary in summaries:
            partial[summary.part].replace(summary.path)
        return summaries
    finally:
        for path in partial.values():
            path.unlink(missing_ok=True)


def write_split(dataset, split, format, path, summary):
    with path.open("w", encoding="utf-8", newline="\n") as file:
        number = 0
        for number, row in enumerate(rows(dataset), start=1):
            summary.observe(row)
            text, replaced = format.encode(row, split, number)
            if text is None:
                summary.blank += 1
                continue
            file.write(text)
            summary.rows += 1
            summary.replaced += replaced
            if "label" in format.needs:
                summary.classes.add(as_text(row[format.needs["label"]]))
        if summary.rows == 0:
            raise HubError(f"split {split} has {count(number)}, but none with all required fields")
        # Synced before it is renamed, so that a power failure leaves no truncated file.
        file.flush()
        os.fsync(file.fileno())


def rows(dataset):
    """The rows of a split as dictionaries.

    Nothing is decoded: a class is its index, an image its bytes. Nested fields are flattened:
    `translation.en` becomes `translation_en`.
    """
    for table in dataset.with_format("arrow").iter(batch_size=1000):
        while (flat := table.flatten()).column_names != table.column_names:
            table = flat
        for row in table.to_pylist():
            yield {name.replace(".", "_"): plain(value) for name, value in row.items()}


# The config


def section(format, summaries):
    """The `[data]` section for the files, or a hint if the fields cannot be guessed."""
    fields = summaries[0].fields
    needs, data_kind = format.needs, format.kind
    if data_kind is None:
        needs, data_kind = guess(fields), "labelled"
    if needs is None:
        texts = [name for name, kind in fields.items() if kind == "text"]
        return (
            "# The fields to train on are ambiguous; text fields: "
            f"{', '.join(texts)}\n"
            "# Select fields, with --overwrite:\n"
            "#   --text FIELD --label FIELD      labelled text\n"
            "#   --source FIELD --target FIELD   parallel text\n"
            "#   --text FIELD                    plain text\n"
        )

    def quoted(text):
        return json.dumps(str(text), ensure_ascii=False)

    lines = ["[data]", f'kind = "{data_kind}"']
    lines += [f"{summary.part} = {quoted(summary.path)}" for summary in summaries]
    if data_kind == "labelled":
        lines += [f"{role}_field = {quoted(needs[role])}" for role in ("label", "text")]
    return "\n".join(lines) + "\n"


def guess(fields):
    """The label and text fields, if unambiguous."""
    if "label" in fields and "text" in fields:
        return {"label": "label", "text": "text"}
    numbers = [name for name, kind in fields.items() if kind == "integer"]
    texts = [name for name, kind in fields.items() if kind == "text"]
    if len(numbers) == 1 and len(texts) == 1:
        return {"label": numbers[0], "text": texts[0]}
    return None


# The Hub


def load(name, subset, cache):
    """Loads all splits of a dataset from the Hub, the cache or a folder."""
    import datasets

    try:
        return datasets.load_dataset(name, subset, cache_dir=str(cache / "datasets"))
    except Exception as error:
        dataset = f"{name} with subset {subset}" if subset else name
        raise HubError(
            f"cannot load {dataset}: {error}\n"
            "  help: check the name at https://huggingface.co/datasets, and whether it needs a "
            "--subset\n"
            "  check the connection to the Hub (HF_ENDPOINT selects a mirror), and set HF_TOKEN if the "
            "dataset requires a login"
        ) from error


def run_in_environment(cache):
    """Runs this program in a virtual environment with `datasets`."""
    folder = cache / "venv"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python3")

    def call(*arguments):
        # Standard output is reserved for the result.
        return subprocess.run(arguments, stdout=sys.stderr).returncode == 0

    def has_datasets():
        return python.exists() and call(python, "-c", "import datasets")

    if not has_datasets():
        print(f"installing the Python package datasets into {folder}", file=sys.stderr)
        made = call(sys.executable, "-m", "venv", folder)
        if not (made and call(python, "-m", "pip", "--quiet", "install", "datasets")):
            raise HubError(
                f"cannot install the Python package datasets into {folder}\n"
                "  help: check that pip can reach PyPI (PIP_INDEX_URL selects another index), the disk "
                "space, and on Debian that python3-venv is installed; then remove that folder and try "
                "again"
            )
    return subprocess.run([python, __file__, *sys.argv[1:]]).returncode


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="cargo xtask hub",
        description="Download a dataset of the Hugging Face Hub and write it as files for training. "
        "Without --text, --source and --target, all fields are written as JSON lines.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("name", help="name on the Hub, such as stanfordnlp/imdb, or a local folder")
    add("--subset", metavar="NAME", help="subset (configuration) of the dataset")
    add("--to", metavar="FOLDER", type=Path, required=True, help="output folder")
    add(
        "--split",
        metavar="PART=NAME",
        type=split_choice,
        action="append",
        default=[],
        help="select a split, such as valid=validation_matched; test= skips it",
    )
    add("--source", metavar="FIELD", help="source field of parallel text")
    add("--target", metavar="FIELD", help="target field of parallel text")
    add("--text", metavar="FIELD", help="text field of plain text or, with --label, of labelled text")
    add("--label", metavar="FIELD", help="label field")
    add("--overwrite", action="store_true", help="replace existing files")
    add(
        "--cache",
        metavar="FOLDER",
        type=Path,
        required=True,
        help="cache of datasets and Python packages [default: attention-zoo/hub in the user's cache]",
    )
    parsed = parser.parse_args(arguments)
    for flag, other in [("source", "target"), ("target", "source"), ("label", "text")]:
        if getattr(parsed, flag) and not getattr(parsed, other):
            parser.error(f"--{flag} needs --{other} FIELD")
    if parsed.source and parsed.text:
        parser.error("--source cannot be used with --text")
    return parsed


def run(arguments):
    format = Format.from_arguments(arguments)
    if not arguments.overwrite:
        refuse_existing(arguments.to, format)
    cache = arguments.cache.absolute()
    if importlib.util.find_spec("datasets") is None:
        return run_in_environment(cache)
    data = load(arguments.name, arguments.subset, cache)
    summaries = write(data, choose_splits(arguments.split, data), format, arguments.to)
    for summary in summaries:
        print(printable(summary.summary()), file=sys.stderr)
    print(file=sys.stderr)
    print(section(format, summaries), end="")
    return 0


def main():
    arguments = parse(sys.argv[1:])
    try:
        return run(arguments)
    except HubError as error:
        message = str(error)
    except OSError as error:
        message = str(error)
    print(f"error: {printable(message)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
