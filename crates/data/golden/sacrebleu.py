"""Golden values of sacreBLEU's tokenizers, BLEU and chrF.

sacreBLEU 2.6.0, seed 20180815. From the repository's root:

    pip install sacrebleu==2.6.0
    python3 crates/data/golden/sacrebleu.py

writes sacrebleu.json next to this file. Some texts are written by hand, others are random sequences
of characters that are hard to tokenize.
"""

import json
import pathlib
import random
import sys

# This file has the name of the package and would be imported instead of it.
sys.path.remove(str(pathlib.Path(__file__).resolve().parent))

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

VERSION = "2.6.0"
SEED = 20180815

TOKENIZERS = ["13a", "none", "char", "zh"]

# Lists of (hypothesis, references).
BY_HAND = {
    "english": [
        ("A heron stood in the river.", ["A heron stood in the river.", "There was a heron in the river."]),
        ("It hadn't moved.", ["It did not move.", "Nothing had moved."]),
        ("The river moved slowly, too.", ["The river moved slowly, too.", "Slow was the river, too."]),
    ],
    "one reference": [
        ("an old woman in a green coat is reading the paper on a bench", ["an old woman in a green coat reads a paper on the bench"]),
        ("three boys throw stones at the frozen lake in winter", ["in winter, three boys are throwing stones onto the frozen lake"]),
    ],
    "capitals": [("THE Cat SAT on The mat today", ["the cat sat on the mat TODAY"])],
    "final sigma": [("ΟΔΟΣ ΟΔΟΣ και οδός ΙΙ", ["οδος Οδος ΚΑΙ οδός ιι"])],
    "empty output": [("", ["something was expected here"])],
    "one of two is empty": [("", ["something was expected here"]), ("and here it is at last", ["and here it is at last"])],
    "empty reference": [("nothing was expected", [""])],
    "both empty": [("", [""])],
    "blanks": [(" \t ", ["a b c d e"]), ("a\u3000b c\u00a0d\u001de ", ["a b c d e"])],
    "nothing in common": [("alpha beta gamma delta", ["one two three four"])],
    "no run of four": [("the cat is on a mat", ["the cat sat on the mat"])],
    "no run of two": [("mat the on cat sat", ["the cat is on the mat"])],
    "shorter than four words": [("long time", ["long time no see"]), ("no see", ["no see"])],
    "a single word": [("hello", ["hello"])],
    "a single wrong word": [("hello", ["goodbye"])],
    "repeated words": [("a a a a a a a", ["a bird in a tree", "there sits a bird"])],
    "longer than its references": [("the bridge over the river was closed in the spring since ice had damaged two of its pillars", ["the bridge was closed", "the bridge over the river was shut"])],
    "lengths as near to both": [("a b c d e f", ["a b c d", "a b c d e f g h"]), ("a b c d e f", ["a b c d e f g h", "a b c d"])],
    "chinese": [("好久不见,你好吗?", ["好久不见,你最近好吗?"]), ("今天天气很好。", ["今天的天气真好。", "今天天气很好!"])],
    "chinese and english": [("我有3.5个apples,“真的”……", ["我有3.5个apple,“真的”——好的"])],
    "rare characters": [("\U00020000\U0002a6d6 \U0002f800 ⺀⿰㐀䶵龻龼", ["\U00020000 \U0002a6d6 \U0002f800⺀ ⿰㐀䶵龻 龼"])],
    "punctuation": [("\"Don't!\" he said (3-4 times), for $1,234.56... <b>&amp;</b>", ["\"Do not!\" he said (3 - 4 times), for $1,234.56. &lt;b&gt;&amp;&lt;/b&gt;"])],
    "markup": [("a &quot;b&quot; <skipped>c d-\ne f", ["a \"b\" c de f"])],
    "accents and emoji": [("Où est la bibliothèque ? 🎉🎉 naïve café", ["Où est la bibliotheque? 🎉 naïve cafe\u0301"])],
    "right to left": [("مرحبا بالعالم كيف حالك اليوم", ["مرحبا يا عالم كيف حالك اليوم"])],
    "more references for some": [("a small house by the sea", ["a small house at the sea"]), ("and a boat in the bay", ["a boat in the bay", "and boats in the bay"])],
}

PIECES = [
    *"abcdeABC0123456789",
    *".,-'\"$%&()*/:;<>?@[]^_`{|}~!#+=\\",
    *["the", "cat", "3.5", "1,000", "&quot;", "&amp;", "&lt;", "...", ".,.", "--", "-\n", "\n", "\t", "  "],
    *["好", "久", "不", "见", "，", "。", "“", "”", "—", "…", "ｆ", "ﾊ", "①", "♥", "\u3000", "é", "e\u0301", "\u200b", "😀", "𠮷", "ß", "İ"],
]


def random_line(length):
    """Random pieces, some of them separated by spaces."""
    return "".join(random.choice(PIECES) + random.choice(["", "", " "]) for _ in range(length))


def perturbed(line):
    """The line with random deletions, duplications and replacements."""
    letters = list(line)
    for _ in range(max(1, len(letters) // 6)):
        at = random.randrange(len(letters))
        how = random.randrange(3)
        if how == 0 and len(letters) > 1:
            letters.pop(at)
        elif how == 1:
            letters.insert(at, letters[at])
        else:
            letters[at] = random.choice(PIECES)
    return "".join(letters)


def random_corpus():
    corpus = []
    for _ in range(random.randrange(1, 6)):
        line = random_line(random.randrange(1, 25))
        corpus.append((perturbed(line), [perturbed(line) for _ in range(random.randrange(1, 4))]))
    return corpus


def streams(corpus):
    """References by stream, as sacreBLEU expects: all first references, all second ones, ..."""
    count = max(len(references) for _, references in corpus)
    return [[refs[at] if at < len(refs) else None for _, refs in corpus] for at in range(count)]


def bleu(name, corpus, **settings):
    metric = BLEU(force=True, **settings)
    score = metric.corpus_score([output for output, _ in corpus], streams(corpus))
    return {
        "corpus": name,
        "tokenizer": settings.get("tokenize", "13a"),
        "lowercase": settings.get("lowercase", False),
        "score": score.score,
        "precisions": score.precisions,
        "brevity_penalty": score.bp,
        "hypothesis_length": score.sys_len,
        "reference_length": score.ref_len,
        "printed": score.format(width=2, signature=str(metric.get_signature())),
    }


def chrf(name, corpus):
    metric = CHRF()
    score = metric.corpus_score([output for output, _ in corpus], streams(corpus))
    return {
        "corpus": name,
        "score": score.score,
        "printed": score.format(width=2, signature=str(metric.get_signature())),
    }


def bleu_cases(name, corpus):
    for tokenizer in TOKENIZERS:
        yield bleu(name, corpus, tokenize=tokenizer)
    yield bleu(name, corpus, lowercase=True)


def main():
    assert sacrebleu.__version__ == VERSION, f"sacreBLEU {sacrebleu.__version__} is not {VERSION}"
    random.seed(SEED)
    corpora = dict(BY_HAND)
    for number in range(8):
        corpora[f"drawn {number}"] = random_corpus()

    lines = [line for corpus in corpora.values() for output, refs in corpus for line in [output, *refs]]
    lines += [random_line(random.randrange(1, 30)) for _ in range(100)]
    tokens = []
    for line in dict.fromkeys(lines):
        # Preprocessed as BLEU does, with single spaces between tokens.
        tokenized = {name: " ".join(BLEU(tokenize=name)._preprocess_segment(line).split()) for name in TOKENIZERS}
        tokens.append({"line": line, "words": tokenized})

    golden = {
        "made_by": f"sacreBLEU {VERSION}, crates/data/golden/sacrebleu.py, seed {SEED}",
        "corpora": [{"name": name, "lines": lines} for name, lines in corpora.items()],
        "tokens": tokens,
        "bleu": [case for item in corpora.items() for case in bleu_cases(*item)],
        "chrf": [chrf(*item) for item in corpora.items()],
    }
    # One case per line, for readable diffs.
    with open(pathlib.Path(__file__).with_suffix(".json"), "w", encoding="utf-8") as file:
        file.write('{"made_by": ' + json.dumps(golden["made_by"]))
        for key in ["corpora", "tokens", "bleu", "chrf"]:
            rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in golden[key])
            file.write(f',\n"{key}": [\n{rows}\n]')
        file.write("}\n")


main()
