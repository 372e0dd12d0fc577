"""Tests of hub.py: `python3 test_hub.py`, as `cargo xtask test` does.

With ZOO_HUB set, the package `datasets` itself is installed and loads a small folder.
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


def form(*flags):
    return hub.Form.chosen(hub.parse(["n", "--to", "t", "--cache", "c", *flags]))


class Values(unittest.TestCase):
    def test_values_are_what_json_has(self):
        for value, plain, kind in [
            (True, 1, "whole number"),
            (7, 7, "whole number"),
            (0.5, 0.5, "number"),
            (float("nan"), None, "missing"),
            ("一", "一", "text"),
            (b"ab", b"ab", "bytes"),
            ([1], [1], "list"),
            (hub.datetime.datetime(2026, 1, 2, 3), "2026-01-02 03:00:00", "text"),
        ]:
            self.assertEqual((hub.plain(value), hub.kind(hub.plain(value))), (plain, kind))

    def test_numbers_are_read_as_texts(self):
        self.assertEqual([hub.as_text(value) for value in (3, 2.0, 0.5)], ["3", "2", "0.5"])

    def test_a_field_of_some_whole_numbers_is_one_of_numbers(self):
        written = hub.Written("train", Path("train.jsonl"))
        for value in (None, 1, 0.5, 2):
            written.observe({"x": value})
        self.assertEqual(written.fields, {"x": "number"})

    def test_what_a_terminal_acts_on_is_escaped(self):
        self.assertEqual(hub.printable("a\tb\n\x1b[2J\u202e好"), "a\tb\n\\u{1b}[2J\\u{202e}好")


class Forms(unittest.TestCase):
    def test_pairs_are_one_line_each(self):
        pairs = form("--source", "de", "--target", "en")
        for de, en, expected in [
            ("gut ", "good", ("gut\tgood\n", False)),
            ("a\r\nb", "a\tb", ("a b\ta b\n", True)),
            ("gut", None, (None, False)),
            (" \n", "good", (None, False)),
            (3, 0.5, ("3\t0.5\n", False)),
        ]:
            self.assertEqual(pairs.written({"de": de, "en": en}, "train", 1), expected)

    def test_running_text_has_its_lines(self):
        row = {"en": "a\n\n b\n\n", "de": None}
        self.assertEqual(form("--text", "en").written(row, "train", 1), ("a\n\n b\n", False))

    def test_fields_have_their_order_and_bytes_and_lists_are_left_out(self):
        row = {"z": "一", "b": b"12", "a": None, "l": [1], "n": -1, "x": 0.5}
        text, _ = form().written(row, "train", 1)
        self.assertEqual(text, '{"z":"一","a":null,"n":-1,"x":0.5}\n')

    def test_unknown_fields_and_pictures_are_errors(self):
        row = {"de": b"123456789", "en": [], "n": 3}
        for flags, message in [
            (
                ["--label", "n", "--text", "ne"],
                'split dev: unknown field "ne": did you mean n?\n  known: de, en, n',
            ),
            (["--text", "de"], "split dev, row 4: de is 9 bytes, and no text"),
            (["--text", "en"], "split dev, row 4: en is a list, and no text"),
        ]:
            with self.assertRaises(hub.HubError) as caught:
                form(*flags).written(row, "dev", 4)
            self.assertEqual(str(caught.exception), message)


class Splits(unittest.TestCase):
    def chosen(self, choices, splits):
        return hub.choose_splits(map(hub.split_choice, choices), splits)

    def test_the_usual_names_are_known_and_others_can_be_chosen(self):
        usual = self.chosen([], ["unsupervised", "test", "train", "dev"])
        self.assertEqual(usual, {"train": "train", "valid": "dev", "test": "test"})
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
    def test_fields_are_guessed_only_where_it_is_plain(self):
        text, whole = "text", "whole number"
        for fields, guessed in [
            ({"title": text, "text": text, "label": text}, ("label", "text")),
            ({"stars": whole, "review": text, "p": "number"}, ("stars", "review")),
            ({"de": text, "en": text}, None),
            ({"id": whole, "y": whole, "x": text}, None),
        ]:
            found = hub.guess(fields)
            self.assertEqual(found and (found["label"], found["text"]), guessed)

    def test_what_cannot_be_guessed_is_asked_for(self):
        written = hub.Written("train", Path("train.jsonl"))
        written.fields = {"de": "text", "n": "number", "en": "text"}
        self.assertIn("these are texts: de, en\n", hub.section(form(), [written]))


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.data = datasets.load_dataset("reviews", None, None)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_every_field_is_written_where_none_is_chosen(self):
        [written] = hub.write(self.data, {"train": "train"}, form(), self.folder)
        lines = (self.folder / "train.jsonl").read_text(encoding="utf-8").splitlines()
        self.assertEqual(
            lines[0],
            '{"text":"A good film.\\nReally\\tgood.","label":1,"score":4.5,"checked":1,'
            '"translation_en":"long time\\nno see","translation_zh":"好久不见"}',
        )
        self.assertEqual(len(lines), 3)
        self.assertEqual(
            written.summary().splitlines()[1],
            "  fields: text (text), label (whole number), score (number), "
            "checked (whole number), photo (bytes, left out), tags (list, left out), "
            "translation_en (text), translation_zh (text)",
        )

    def test_existing_files_stay_and_a_failure_leaves_nothing(self):
        pairs = form("--source", "translation_zh", "--target", "translation_en")
        hub.refuse_existing(self.folder, pairs)
        (self.folder / "valid.tsv").write_text("mine")
        with self.assertRaisesRegex(hub.HubError, "valid.tsv is there already(.|\n)*--overwrite"):
            hub.refuse_existing(self.folder, pairs)
        # Files of another form do not matter.
        hub.refuse_existing(self.folder, form())
        # The first split can be written and the second cannot: neither is.
        self.data["validation"] = datasets.Dataset([{"other": 1}])
        with self.assertRaises(hub.HubError):
            hub.write(self.data, {"train": "train", "valid": "validation"}, pairs, self.folder)
        self.assertEqual(self.names(), ["valid.tsv"])
        self.assertEqual((self.folder / "valid.tsv").read_text(), "mine")

    def test_a_split_of_blank_rows_is_an_error(self):
        data = {"train": datasets.Dataset([datasets.BLANK] * 2)}
        with self.assertRaisesRegex(hub.HubError, "train has 2 rows, and none that can be used"):
            hub.write(data, {"train": "train"}, form("--text", "text"), self.folder)
        self.assertEqual(self.names(), [])


class Environment(unittest.TestCase):
    """Which programs are run, by a stand-in that runs none."""

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

    def test_packages_that_cannot_be_installed_are_an_error(self):
        for fails in (["import", "-m venv"], ["import", "-m pip"]):
            _, error = self.calls(fails)
            for part in ("could not be installed into cache/venv", "PIP_INDEX_URL", "python3-venv"):
                self.assertIn(part, error)


@unittest.skipUnless("ZOO_HUB" in os.environ, "installs the package datasets: set ZOO_HUB")
class Real(unittest.TestCase):
    """The package `datasets` itself, which is installed as for a user."""

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
