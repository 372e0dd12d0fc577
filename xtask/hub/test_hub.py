"""Tests of hub.py: `python3 test_hub.py`, as `cargo xtask test` does.

With ZOO_HUB set, the real package `datasets` is installed and loads a small folder.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "fake")]

import datasets  # noqa: E402
import hub  # noqa: E402


def file_format(*flags):
    return hub.Format.from_arguments(hub.parse(["n", "--to", "t", "--cache", "c", *flags]))


class Values(unittest.TestCase):
    def test_values_as_json(self):
        for value, plain, kind in [
            (True, 1, "integer"),
            (7, 7, "integer"),
            (0.5, 0.5, "number"),
            (float("nan"), None, "missing"),
            ("一", "一", "text"),
            (b"ab", b"ab", "bytes"),
            ([1], [1], "list"),
            (hub.datetime.datetime(2026, 1, 2, 3), "2026-01-02 03:00:00", "text"),
        ]:
            self.assertEqual((hub.plain(value), hub.kind(hub.plain(value))), (plain, kind))

    def test_numbers_as_strings(self):
        self.assertEqual([hub.as_text(value) for value in (3, 2.0, 0.5)], ["3", "2", "0.5"])

    def test_integers_and_floats_are_numbers(self):
        written = hub.SplitSummary("train", Path("train.jsonl"))
        for value in (None, 1, 0.5, 2):
            written.observe({"x": value})
        self.assertEqual(written.fields, {"x": "number"})

    def test_control_characters_are_escaped(self):
        self.assertEqual(hub.printable("a\tb\n\x1b[2J\u202e好"), "a\tb\n\\u{1b}[2J\\u{202e}好")


class Formats(unittest.TestCase):
    def test_parallel_text(self):
        pairs = file_format("--source", "de", "--target", "en")
        for de, en, expected in [
            ("gut ", "good", ("gut\tgood\n", False)),
            ("a\r\nb", "a\tb", ("a b\ta b\n", True)),
            ("gut", None, (None, False)),
            (" \n", "good", (None, False)),
            (3, 0.5, ("3\t0.5\n", False)),
        ]:
            self.assertEqual(pairs.encode({"de": de, "en": en}, "train", 1), expected)

    def test_plain_text(self):
        row = {"en": "a\n\n b\n\n", "de": None}
        self.assertEqual(file_format("--text", "en").encode(row, "train", 1), ("a\n\n b\n", False))

    def test_json_lines_without_bytes_and_lists(self):
        row = {"z": "一", "b": b"12", "a": None, "l": [1], "n": -1, "x": 0.5}
        text, _ = file_format().encode(row, "train", 1)
        self.assertEqual(text, '{"z":"一","a":null,"n":-1,"x":0.5}\n')

    def test_unknown_fields_and_bytes_are_errors(self):
        row = {"de": b"123456789", "en": [], "n": 3}
        for flags, message in [
            (
                ["--label", "n", "--text", "ne"],
                'split dev: unknown field "ne": did you mean n?\n  known: de, en, n',
            ),
            (["--text", "de"], "split dev, row 4: de is 9 bytes, not text"),
            (["--text", "en"], "split dev, row 4: en is a list, not text"),
        ]:
            with self.assertRaises(hub.HubError) as caught:
                file_format(*flags).encode(row, "dev", 4)
            self.assertEqual(str(caught.exception), message)


class Splits(unittest.TestCase):
    def chosen(self, choices, splits):
        return hub.choose_splits(map(hub.split_choice, choices), splits)

    def test_common_names_and_selected_splits(self):
        common = self.chosen([], ["unsupervised", "test", "train", "dev"])
        self.assertEqual(common, {"train": "train", "valid": "dev", "test": "test"})
        own = self.chosen(["train=x", "train=full", "test="], ["full", "test"])
        self.assertEqual(own, {"train": "full"})

    def test_unknown_splits_and_parts_are_errors(self):
        for choices, splits, start, end in [
            ([], ["test"], 'unknown split "train"', "--split train=NAME"),
            (["valid=valdiation"], ["train", "validation"], "unknown split", "valid=NAME"),
        ]:
            with self.assertRaises(hub.HubError) as caught:
                self.chosen(choices, splits)
            self.assertTrue(str(caught.exception).startswith(start), caught.exception)
            self.assertTrue(str(caught.exception).endswith(end), caught.exception)
        for text, message in [("tset=test", "did you mean test?"), ("test", "valid=")]:
            with self.assertRaisesRegex(hub.argparse.ArgumentTypeError, message.replace("?", ".")):
                hub.split_choice(text)


class Sections(unittest.TestCase):
    def test_unambiguous_fields_are_guessed(self):
        text, integer = "text", "integer"
        for fields, guessed in [
            ({"title": text, "text": text, "label": text}, ("label", "text")),
            ({"stars": integer, "review": text, "p": "number"}, ("stars", "review")),
            ({"de": text, "en": text}, None),
            ({"id": integer, "y": integer, "x": text}, None),
        ]:
            found = hub.guess(fields)
            self.assertEqual(found and (found["label"], found["text"]), guessed)

    def test_ambiguous_fields(self):
        written = hub.SplitSummary("train", Path("train.jsonl"))
        written.fields = {"de": "text", "n": "number", "en": "text"}
        self.assertIn("text fields: de, en\n", hub.section(file_format(), [written]))


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.data = datasets.load_dataset("reviews", None, None)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_all_fields_are_written_by_default(self):
        [written] = hub.write(self.data, {"train": "train"}, file_format(), self.folder)
        lines = (self.folder / "train.jsonl").read_text(encoding="utf-8").splitlines()
        self.assertEqual(
            lines[0],
            '{"text":"A good film.\\nReally\\tgood.","label":1,"score":4.5,"checked":1,'
            '"translation_en":"long time\\nno see","translation_zh":"好久不见"}',
        )
        self.assertEqual(len(lines), 3)
        self.assertEqual(
            written.summary().splitlines()[1],
            "  fields: text (text), label (integer), score (number), "
            "checked (integer), photo (bytes, not written), tags (list, not written), "
            "translation_en (text), translation_zh (text)",
        )

    def test_existing_files_are_kept_and_failures_write_nothing(self):
        pairs = file_format("--source", "translation_zh", "--target", "translation_en")
        hub.refuse_existing(self.folder, pairs)
        (self.folder / "valid.tsv").write_text("mine")
        with self.assertRaisesRegex(hub.HubError, "valid.tsv already exists(.|\n)*--overwrite"):
            hub.refuse_existing(self.folder, pairs)
        # Files of another format do not matter.
        hub.refuse_existing(self.folder, file_format())
        # The second split fails, so neither is written.
        self.data["validation"] = datasets.Dataset([{"other": 1}])
        with self.assertRaises(hub.HubError):
            hub.write(self.data, {"train": "train", "valid": "validation"}, pairs, self.folder)
        self.assertEqual(self.names(), ["valid.tsv"])
        self.assertEqual((self.folder / "valid.tsv").read_text(), "mine")

    def test_a_split_without_usable_rows_is_an_error(self):
        data = {"train": datasets.Dataset([datasets.BLANK] * 2)}
        with self.assertRaisesRegex(hub.HubError, "train has 2 rows, but none with all required fields"):
            hub.write(data, {"train": "train"}, file_format("--text", "text"), self.folder)
        self.assertEqual(self.names(), [])


class Environment(unittest.TestCase):
    """Subprocesses of the virtual environment, mocked."""

    def calls(self, fails=()):
        def run(arguments, **_):
            called.append(" ".join(map(str, arguments)))
            return mock.Mock(returncode=any(word in called[-1] for word in fails))

        called = []
        with (
            mock.patch.object(hub.subprocess, "run", run),
            mock.patch.object(Path, "exists", lambda path: True),
            mock.patch.object(sys, "argv", ["hub.py", "reviews"]),
        ):
            try:
                hub.run_in_environment(Path("cache"))
            except hub.HubError as error:
                return called, str(error)
        return called, None

    def test_packages_are_installed_once(self):
        called, _ = self.calls(fails=["import datasets"])
        ends = ["import datasets", "-m venv cache/venv", "install datasets", "hub.py reviews"]
        for call, end in zip(called, ends, strict=True):
            self.assertTrue(call.endswith(end), call)
        called, _ = self.calls()
        self.assertEqual(len(called), 2)
        self.assertTrue(called[1].endswith("hub.py reviews"), called)

    def test_failed_installation(self):
        for fails in (["import", "-m venv"], ["import", "-m pip"]):
            _, error = self.calls(fails)
            for part in ("datasets into cache/venv", "PIP_INDEX_URL", "python3-venv"):
                self.assertIn(part, error)


@unittest.skipUnless("ZOO_HUB" in os.environ, "installs the package datasets: set ZOO_HUB")
class Real(unittest.TestCase):
    """The real package `datasets`, installed as for a user."""

    def test_a_folder_is_loaded(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            card = "---\nconfigs:\n- config_name: default\n  data_files:\n"
            for split, rows in datasets.SPLITS.items():
                rows = [{**row, "photo": None} for row in rows]
                text = "".join(json.dumps(row) + "\n" for row in rows)
                (folder / f"{split}.jsonl").write_text(text)
                card += f"  - split: {split}\n    path: {split}.jsonl\n"
            (folder / "README.md").write_text(card + "---\n")
            cache = os.environ["ZOO_HUB"]
            pairs = ["--source", "translation_zh", "--target", "translation_en"]
            flags = [str(folder), "--to", folder / "to", "--cache", cache, *pairs]
            output = subprocess.run(
                [sys.executable, HERE / "hub.py", *flags, "--split", "test=test.hard"],
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
            self.assertIn('[data]\nkind = "parallel"\n', output.stdout)
            train = (folder / "to/train.tsv").read_text(encoding="utf-8")
            self.assertEqual(train, "好久不见\tlong time no see\n你好\thello\n")
            self.assertTrue((folder / "to/test.tsv").is_file())


if __name__ == "__main__":
    unittest.main()
