"""Writes a data set of the Hugging Face hub as files that training reads.

`cargo xtask hub` starts this program. The package `datasets` loads the data set and caches what it
downloads; it is installed into a virtual environment in the cache folder unless this Python has it.
Every field is written, as JSON lines, unless flags choose some. The `[data]` section of a config
that reads the files is printed on standard output, everything else on standard error.
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

# What a split is used for: its key in a config, and what the hub calls it, most often first.
PARTS = {"train": ["train"], "valid": ["validation", "valid", "val", "dev"], "test": ["test"]}

CLASSES_SHOWN = 20
KNOWN_SHOWN = 50


class HubError(Exception):
    """A mistake that the user can do something about."""


def unknown(what, got, known):
    """Says that a name is unknown, with the nearest one and all that are known."""
    known = list(known)
    nearest = difflib.get_close_matches(got, known, n=1)
    hint = f": did you mean {nearest[0]}?" if nearest else ""
    more = f" and {len(known) - KNOWN_SHOWN} more" if len(known) > KNOWN_SHOWN else ""
    return f'unknown {what} "{got}"{hint}\n  known: {", ".join(known[:KNOWN_SHOWN])}{more}'


def printable(text):
    """The text without characters that a terminal acts on, except line ends and tabs."""

    def acts(character):
        joins = character in "\u200c\u200d\u200e\u200f\u061c"
        return unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") and not joins

    escaped = (
        f"\\u{{{ord(letter):x}}}" if letter not in "\n\t" and acts(letter) else letter
        for letter in text
    )
    return "".join(escaped)


# Values


def plain(value):
    """A value of a row as JSON has it; a truth value is a number, as a class is.

    Bytes and lists stay what they are, and are not written.
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
    """What a value is, for the summary and for guessing which field is which."""
    match value:
        case None:
            return "missing"
        case int():
            return "whole number"
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
    """A text, or a number as one."""
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_whole else str(value)


# Forms


@dataclass
class Form:
    """What files are written: `needs` maps the role of a field to its name."""

    extension: str
    # The kind of `[data]` that reads them; with every field written, it is guessed.
    kind: str | None
    needs: dict[str, str] = field(default_factory=dict)

    @classmethod
    def chosen(cls, arguments):
        if arguments.source:
            needs = {"source": arguments.source, "target": arguments.target}
            return cls("tsv", "parallel", needs)
        if arguments.label:
            return cls("jsonl", "labelled", {"label": arguments.label, "text": arguments.text})
        if arguments.text:
            return cls("txt", "plain", {"text": arguments.text})
        return cls("jsonl", None)

    def written(self, row, split, number):
        """The row as a part of the file, or None if a field that is needed is blank.

        The second value tells whether tabs or line ends became spaces.
        """
        texts = []
        for name in self.needs.values():
            if name not in row:
                raise HubError(f"split {split}: {unknown('field', name, row)}")
            value = row[name]
            if not is_written(kind(value)):
                what = f"{len(value)} bytes" if isinstance(value, bytes) else "a list"
                raise HubError(f"split {split}, row {number}: {name} is {what}, and no text")
            if value is None or not as_text(value).strip():
                return None, False
            texts.append(as_text(value))
        match self.extension:
            case "tsv":
                # A tab or a line end would end the text for whoever reads the file.
                stripped = [text.strip() for text in texts]
                smooth = [re.sub("\r\n|[\r\n\t]", " ", text) for text in stripped]
                return "\t".join(smooth) + "\n", smooth != stripped
            case "txt":
                return texts[0].rstrip("\n") + "\n", False
            case _:
                cells = {name: value for name, value in row.items() if is_written(kind(value))}
                return json.dumps(cells, ensure_ascii=False, separators=(",", ":")) + "\n", False


# Splits


def split_choice(text):
    """Reads `valid=dev`; with nothing after the `=`, the part is left out."""
    part, equals, split = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError("write for example valid=validation")
    if part not in PARTS:
        raise argparse.ArgumentTypeError(unknown("part", part, PARTS))
    return part, split


def choose_splits(choices, splits):
    """The split of each part: the one that was chosen, or the one with the usual name."""
    # The last choice of a part counts, as for flags.
    choices, chosen = dict(choices), {}
    for part, usual in PARTS.items():
        found = [name for name in usual if name in splits]
        name = choices.get(part, found[0] if found else "train" if part == "train" else "")
        if name and name not in splits:
            what = unknown("split", name, splits)
            raise HubError(f"{what}\n  do: say which is which: --split {part}=NAME")
        if name:
            chosen[part] = name
    return chosen


# Files


@dataclass
class Written:
    """What was written of a split."""

    part: str
    path: Path
    rows: int = 0
    blank: int = 0
    smoothed: int = 0
    # The kind of each field.
    fields: dict[str, str] = field(default_factory=dict)
    classes: set[str] = field(default_factory=set)

    def observe(self, row):
        for name, value in row.items():
            known, now = self.fields.get(name, "missing"), kind(value)
            # Numbers of which some are whole are numbers.
            if known == "missing" or now in ("number", "bytes", "list"):
                self.fields[name] = now

    def summary(self):
        lines = [f"{self.path}: {count(self.rows)}"]
        if self.blank:
            lines.append(f"  {count(self.blank)} left out: a field is blank")
        if self.smoothed:
            lines.append(f"  {count(self.smoothed)} whose tabs or line ends became spaces")
        fields = (
            f"{name} ({kind}{'' if is_written(kind) else ', left out'})"
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


def refuse_existing(folder, form):
    """Fails if a file of any part is there; called before anything slow."""
    for part in PARTS:
        path = folder / f"{part}.{form.extension}"
        if path.exists():
            raise HubError(
                f"{path} is there already\n"
                "  do: choose another --to, or have it replaced with --overwrite"
            )


def write(data, splits, form, folder):
    """Writes a file for each part. They get their names when all are complete."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = {part: folder / f".{part}-{os.getpid()}" for part in splits}
    try:
        all_written = []
        for part, split in splits.items():
            written = Written(part, folder / f"{part}.{form.extension}")
            write_split(data[split], split, form, partial[part], written)
            all_written.append(written)
        for written in all_written:
            partial[written.part].replace(written.path)
        return all_written
    finally:
        for path in partial.values():
            path.unlink(missing_ok=True)


def write_split(dataset, split, form, path, written):
    with path.open("w", encoding="utf-8", newline="\n") as file:
        number = 0
        for number, row in enumerate(rows(dataset), start=1):
            written.observe(row)
            text, smoothed = form.written(row, split, number)
            if text is None:
                written.blank += 1
                continue
            file.write(text)
            written.rows += 1
            written.smoothed += smoothed
            if "label" in form.needs:
                written.classes.add(as_text(row[form.needs["label"]]))
        if written.rows == 0:
            raise HubError(f"split {split} has {count(number)}, and none that can be used")
        # On the disk before it gets its name: a power cut leaves no short file behind.
        file.flush()
        os.fsync(file.fileno())


def rows(dataset):
    """The rows of a split as dictionaries.

    Nothing is decoded: a class is its number, a picture is its bytes. What is nested becomes
    fields of the row: `translation.en` is `translation_en`.
    """
    for table in dataset.with_format("arrow").iter(batch_size=1000):
        while (flat := table.flatten()).column_names != table.column_names:
            table = flat
        for row in table.to_pylist():
            yield {name.replace(".", "_"): plain(value) for name, value in row.items()}


# The config


def section(form, all_written):
    """The `[data]` section that reads the files, or what is to be said before there is one."""
    fields = all_written[0].fields
    needs, data_kind = form.needs, form.kind
    if data_kind is None:
        needs, data_kind = guess(fields), "labelled"
    if needs is None:
        texts = [name for name, kind in fields.items() if kind == "text"]
        return (
            "# Which fields to learn from cannot be guessed; these are texts: "
            f"{', '.join(texts)}\n"
            "# Choose some, with --overwrite, and the files and this section follow:\n"
            "#   --text FIELD --label FIELD      texts and their classes\n"
            "#   --source FIELD --target FIELD   texts and their translations\n"
            "#   --text FIELD                    running text\n"
        )

    def quoted(text):
        return json.dumps(str(text), ensure_ascii=False)

    lines = ["[data]", f'kind = "{data_kind}"']
    lines += [f"{written.part} = {quoted(written.path)}" for written in all_written]
    if data_kind == "labelled":
        lines += [f"{role}_field = {quoted(needs[role])}" for role in ("label", "text")]
    return "\n".join(lines) + "\n"


def guess(fields):
    """The fields of a class and a text, where it is plain which they are."""
    if "label" in fields and "text" in fields:
        return {"label": "label", "text": "text"}
    numbers = [name for name, kind in fields.items() if kind == "whole number"]
    texts = [name for name, kind in fields.items() if kind == "text"]
    if len(numbers) == 1 and len(texts) == 1:
        return {"label": numbers[0], "text": texts[0]}
    return None


# The hub


def load(name, subset, cache):
    """Every split of a data set, from the hub, from the cache, or from a folder."""
    import datasets

    try:
        return datasets.load_dataset(name, subset, cache_dir=str(cache / "datasets"))
    except Exception as error:
        what = f"{name} with subset {subset}" if subset else name
        raise HubError(
            f"{what} could not be loaded: {error}\n"
            "  do: look at https://huggingface.co/datasets whether it is called so, and whether a "
            "subset must be named (--subset)\n"
            "  see that this machine reaches the hub (HF_ENDPOINT names a mirror), and set HF_TOKEN "
            "if the data set wants a login"
        ) from error


def run_in_environment(cache):
    """Runs this program by the Python of a virtual environment that has `datasets`."""
    folder = cache / "venv"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python3")

    def call(*arguments):
        # Standard output is for the result.
        return subprocess.run(arguments, stdout=sys.stderr).returncode == 0

    def has_datasets():
        return python.exists() and call(python, "-c", "import datasets")

    if not has_datasets():
        print(f"installing Python's package datasets into {folder}", file=sys.stderr)
        made = call(sys.executable, "-m", "venv", folder)
        if not (made and call(python, "-m", "pip", "--quiet", "install", "datasets")):
            raise HubError(
                f"Python's package datasets could not be installed into {folder}\n"
                "  do: see that pip reaches PyPI (PIP_INDEX_URL names another index), that there is "
                "disk space, and on Debian that python3-venv is installed; then remove that folder "
                "and try again"
            )
    return subprocess.run([python, __file__, *sys.argv[1:]]).returncode


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="cargo xtask hub",
        description="Writes a data set of the Hugging Face hub as files that training reads. Without "
        "--text, --source and --target, every field is written, as JSON lines.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("name", help="what the hub calls it, as stanfordnlp/imdb, or a folder with files")
    add("--subset", metavar="NAME", help="which subset of it")
    add("--to", metavar="FOLDER", type=Path, required=True, help="the folder for the files")
    add(
        "--split",
        metavar="PART=NAME",
        type=split_choice,
        action="append",
        default=[],
        help="which split becomes what, as valid=validation_matched; test= leaves one out",
    )
    add("--source", metavar="FIELD", help="write pairs: the field of the text")
    add("--target", metavar="FIELD", help="write pairs: the field of its translation")
    add("--text", metavar="FIELD", help="write running text; with --label, texts and classes")
    add("--label", metavar="FIELD", help="the field of the class")
    add("--overwrite", action="store_true", help="replace files that are there")
    add(
        "--cache",
        metavar="FOLDER",
        type=Path,
        required=True,
        help="for data sets and Python's packages [default: attention-zoo/hub in the user's cache]",
    )
    parsed = parser.parse_args(arguments)
    for flag, other in [("source", "target"), ("target", "source"), ("label", "text")]:
        if getattr(parsed, flag) and not getattr(parsed, other):
            parser.error(f"--{flag} needs --{other} FIELD")
    if parsed.source and parsed.text:
        parser.error("--source cannot be used with --text")
    return parsed


def run(arguments):
    form = Form.chosen(arguments)
    if not arguments.overwrite:
        refuse_existing(arguments.to, form)
    cache = arguments.cache.absolute()
    if importlib.util.find_spec("datasets") is None:
        return run_in_environment(cache)
    data = load(arguments.name, arguments.subset, cache)
    all_written = write(data, choose_splits(arguments.split, data), form, arguments.to)
    for written in all_written:
        print(printable(written.summary()), file=sys.stderr)
    print(file=sys.stderr)
    print(section(form, all_written), end="")
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
