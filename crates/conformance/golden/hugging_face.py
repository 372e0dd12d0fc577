"""Small random models as saved by transformers, with their logits, greedy continuations and tokens.

PyTorch 2.15.0, transformers 5.23.0, tokenizers 0.23.3, safetensors 0.8.0, seed 20261119. From the
repository's root:

    python3 crates/conformance/golden/hugging_face.py

writes a folder for each model into hugging_face/ beside this file: what `save_pretrained` writes, and
expected.safetensors with

    tokens      [rows, seq]              prompts
    logits      [rows, seq, vocabulary]  of the forward pass
    generated   [rows, 64]               greedy continuations, without an end token

of the weights in the files, computed in float32. Folders with a tokenizer.json also have texts.json: lines in
several languages with their ids, and generated.json: a prompt and its greedy continuation as text. Every continuation is checked to have a clear winner at each step.
"""

import json
import pathlib
import shutil

import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

SEED = 20261119
ROWS, SEQ, NEW = 2, 12, 64
# A winner is clear if no rounding can change it.
MARGIN = 2e-3
FOLDER = pathlib.Path(__file__).parent / "hugging_face"

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 5.0,
    "original_max_position_embeddings": 16,
}

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "def add(a, b):\n    return a + b  # 1234567",
    "It's 10:45, isn't it? We'll see; they've 3,141.59 reasons.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "敏捷的棕色狐狸跳过了懒狗。好久不见!",
    "いろはにほへと ちりぬるを",
    "키스의 고유조건은 입술끼리 만나야 하고",
    "نص حكيم له سر قاطع وذو شأن عظيم",
    "ऋषियों को सताने वाले दुष्ट राक्षसों",
    "cafe\u0301 ﬁ Å \u212b  three  spaces\t\ttabs\n\nlines \n",
    "🙂👩‍👩‍👧 €100 ½ ≠ ∑",
    "",
    " ",
    "  leading and trailing  ",
    "<|begin_of_text|>special<|eot_id|> tokens </s> <unk> <s>",
    "a" * 40 + " " + "0" * 11,
    "http://example.org/?q=1&x=[y]{z}",
]


def byte_level():
    """As in Llama 3: words by a regular expression, bytes, special tokens after all others."""
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    words = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=310, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A",
                pair="<|begin_of_text|> $A <|begin_of_text|> $B",
                special_tokens=[("<|begin_of_text|>", begin)],
            ),
        ]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|begin_of_text|>",
        eos_token="<|eot_id|>",
        clean_up_tokenization_spaces=False,
    )


def byte_fallback():
    """As in Mistral 7B: spaces are part of the words, unknown characters are bytes."""
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    special = ["<unk>", "<s>", "</s>"]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=special + fallback, limit_alphabet=50, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS[:6], trainer)
    begin = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", begin)]
    )
    # The bytes are ordinary tokens.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = state["added_tokens"][: len(special)]
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


# Arguments of the config; the dtype in the file, the size of a shard, and the tokenizer.
SMALL = dict(vocab_size=61, bos_token_id=None, eos_token_id=None, max_position_embeddings=80)
GPT2 = dict(vocab_size=61, bos_token_id=None, n_positions=80, n_layer=2)
MODELS = {
    "gpt2": (
        transformers.GPT2Config(**GPT2, n_embd=20, n_head=5, eos_token_id=None),
        dict(),
    ),
    "gpt2-untied": (
        transformers.GPT2Config(
            **GPT2,
            n_embd=18,
            n_head=3,
            n_inner=26,
            activation_function="gelu",
            layer_norm_epsilon=1e-3,
            tie_word_embeddings=False,
            eos_token_id=7,
        ),
        dict(dtype=torch.bfloat16),
    ),
    "llama3": (
        transformers.LlamaConfig(
            **{**SMALL, "vocab_size": 320, "bos_token_id": 310, "eos_token_id": [311, 312]},
            hidden_size=20,
            intermediate_size=34,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            rope_parameters=LLAMA3,
            rms_norm_eps=1e-5,
            tie_word_embeddings=False,
        ),
        dict(dtype=torch.bfloat16, shard="20KB", tokenizer=byte_level),
    ),
    "llama-tied": (
        transformers.LlamaConfig(
            **SMALL,
            hidden_size=24,
            intermediate_size=30,
            num_hidden_layers=3,
            num_attention_heads=3,
            num_key_value_heads=1,
            rope_parameters=YARN,
            tie_word_embeddings=True,
        ),
        dict(dtype=torch.float16),
    ),
    "mistral": (
        transformers.MistralConfig(
            **SMALL,
            hidden_size=20,
            intermediate_size=26,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=6,
            sliding_window=5,
        ),
        dict(shard="9KB"),
    ),
    "mistral-tied": (
        transformers.MistralConfig(
            **{**SMALL, "vocab_size": 330, "bos_token_id": 1, "eos_token_id": 2},
            hidden_size=18,
            intermediate_size=22,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=3,
            head_dim=6,
            sliding_window=None,
            rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0},
            tie_word_embeddings=True,
        ),
        dict(dtype=torch.bfloat16, tokenizer=byte_fallback),
    ),
    "qwen2": (
        transformers.Qwen2Config(
            **SMALL,
            hidden_size=24,
            intermediate_size=26,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            use_sliding_window=True,
            sliding_window=4,
            max_window_layers=1,
        ),
        dict(),
    ),
    "qwen2-tied": (
        transformers.Qwen2Config(
            **SMALL,
            hidden_size=18,
            intermediate_size=34,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=1,
            rope_parameters={**YARN, "attention_factor": 0.9, "beta_fast": 8.0, "beta_slow": 2.0},
            tie_word_embeddings=True,
        ),
        dict(dtype=torch.bfloat16),
    ),
    "qwen3": (
        transformers.Qwen3Config(
            **SMALL,
            hidden_size=20,
            intermediate_size=26,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            rms_norm_eps=1e-2,
            tie_word_embeddings=True,
        ),
        dict(),
    ),
    "qwen3-windows": (
        transformers.Qwen3Config(
            **SMALL,
            hidden_size=18,
            intermediate_size=22,
            num_hidden_layers=3,
            num_attention_heads=5,
            num_key_value_heads=1,
            head_dim=4,
            use_sliding_window=True,
            sliding_window=7,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
        dict(dtype=torch.float16, shard="9KB"),
    ),
}


def randomize(model, is_tied):
    """The initializer's weights are too small for logits that differ. A large tied embedding predicts
    the token that it embeds."""
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        if "norm" in name or ".ln_" in name:
            value = 1 + 0.2 * noise if name.endswith("weight") else 0.2 * noise
        elif parameter.dim() == 1:
            value = 0.2 * noise
        elif "embed" in name or "wte" in name or "wpe" in name:
            value = (0.2 if is_tied else 0.7) * noise
        else:
            value = 1.5 * noise / parameter.shape[-1] ** 0.5
        parameter.data.copy_(value)


def expected(path, vocabulary):
    """Prompts, logits and continuations; None if a winner is not clear."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    tokens = torch.randint(vocabulary, (ROWS, SEQ))
    logits = model(tokens).logits
    generation = transformers.GenerationConfig(
        do_sample=False, max_new_tokens=NEW, eos_token_id=None, pad_token_id=0
    )
    texts = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), generation_config=generation
    )
    steps = model(texts).logits[:, SEQ - 1 : -1]
    best = steps.topk(2).values
    is_clear = (best[..., 0] - best[..., 1]).min() > MARGIN
    equal = torch.equal(steps.argmax(-1), texts[:, SEQ:])
    distinct = min(len(set(row.tolist())) for row in texts[:, SEQ:])
    if not is_clear or not equal or distinct < 4:
        return None
    return {"tokens": tokens, "logits": logits, "generated": texts[:, SEQ:].contiguous()}


def write_texts(path, tokenizer):
    lines = [{"text": text, "ids": tokenizer(text)["input_ids"]} for text in TEXTS]
    for line in lines:
        line["decoded"] = tokenizer.decode(line["ids"], skip_special_tokens=True)
    (path / "texts.json").write_text(json.dumps(lines, ensure_ascii=False, indent=1) + "\n")


def write_generated(path, tokenizer):
    """The first text whose continuation, up to an end token, has clear winners."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    for text in TEXTS[:9]:
        inputs = tokenizer(text, return_tensors="pt")
        ids = model.generate(**inputs, do_sample=False, max_new_tokens=24, pad_token_id=0)
        steps = model(ids).logits[0, inputs["input_ids"].shape[1] - 1 : -1]
        best = steps.topk(2).values
        if (best[:, 0] - best[:, 1]).min() > MARGIN:
            generated = {
                "prompt": text,
                "tokens": len(steps),
                "text": tokenizer.decode(ids[0], skip_special_tokens=True),
            }
            content = json.dumps(generated, ensure_ascii=False, indent=1)
            (path / "generated.json").write_text(content + "\n")
            return
    raise SystemExit(f"{path}: no clear continuation of a text")


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    shutil.rmtree(FOLDER, ignore_errors=True)
    for index, (name, (config, options)) in enumerate(MODELS.items()):
        path = FOLDER / name
        for attempt in range(40):
            torch.manual_seed(SEED + 1000 * index + attempt)
            shutil.rmtree(path, ignore_errors=True)
            model = transformers.AutoModelForCausalLM.from_config(config)
            randomize(model, config.tie_word_embeddings)
            model.to(options.get("dtype", torch.float32))
            model.save_pretrained(path, max_shard_size=options.get("shard", "1GB"))
            tensors = expected(path, config.vocab_size)
            if tensors is not None:
                break
        else:
            raise SystemExit(f"{name}: no clear continuation")
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        save_file(tensors, path / "expected.safetensors", versions)
        if "tokenizer" in options:
            tokenizer = options["tokenizer"]()
            assert len(tokenizer) <= config.vocab_size, len(tokenizer)
            tokenizer.save_pretrained(path)
            tokenizer = transformers.AutoTokenizer.from_pretrained(path)
            write_texts(path, tokenizer)
            write_generated(path, tokenizer)
        size = sum(file.stat().st_size for file in path.iterdir())
        print(f"{name}: attempt {attempt + 1}, {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
