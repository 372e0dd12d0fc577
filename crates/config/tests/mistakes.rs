//! Everything a person can get wrong in a file, and what is said of it.

use zoo_config::{Config, ConfigError};

const REVERSE: &str = "[data]\nkind = \"reverse\"\n\n[model]\nkind = \"transformer\"\n";

fn said(text: &str) -> String {
    match Config::parse("a.toml", text, &[]) {
        Ok(config) => panic!("{text} was read as {config:?}"),
        Err(error) => error.to_string(),
    }
}

/// A file that is right but for what is added to it.
#[track_caller]
fn with(addition: &str, message: &str) {
    assert_eq!(said(&format!("{REVERSE}{addition}")), message);
}

/// The same for other data and models.
#[track_caller]
fn of(data: &str, model: &str, message: &str) {
    let text = format!("[data]\n{data}\n[model]\n{model}\n");
    assert_eq!(said(&text), message);
}

#[test]
fn unknown_keys_are_told_with_the_nearest_and_where_they_belong() {
    with(
        "d_modle = 8",
        "a.toml:6:1: [model] of kind transformer: unknown key \"d_modle\": did you mean d_model?\n  \
         known: d_model, heads, kv_heads, d_head, layers, encoder_layers, decoder_layers, \
         encoder_attention, decoder_attention, cross_attention, norm, final_norm, tying, \
         scale_embeddings, d_feed_forward, activation, positions, qk_norm, temperature, softcap, \
         entropy_penalty, dropout, feed_forward_dropout, attention_dropout, bias, epsilon, kind",
    );
    with(
        "[run]\nsteps = 8",
        "a.toml:7:1: [run]: unknown key \"steps\"\n  known: name, seed, output\n  \
         there is a steps in [schedule]",
    );
    with(
        "context = 8",
        "a.toml:6:1: model.context is a key of gpt, and model.kind is transformer\n  \
         keys of transformer: d_model, heads, kv_heads, d_head, layers, encoder_layers, \
         decoder_layers, encoder_attention, decoder_attention, cross_attention, norm, final_norm, \
         tying, scale_embeddings, d_feed_forward, activation, positions, qk_norm, temperature, \
         softcap, entropy_penalty, dropout, feed_forward_dropout, attention_dropout, bias, epsilon",
    );
    with(
        "[optimiser]\nkind = \"sgd\"",
        "a.toml:6:2: unknown section \"optimiser\": did you mean optimizer?\n  \
         known: run, backend, data, tokenizer, model, optimizer, schedule, training, validation, \
         decoding",
    );
    assert_eq!(
        said(&format!("dropout = 0.1\n{REVERSE}")),
        "a.toml:1:1: unknown section \"dropout\"\n  known: run, backend, data, tokenizer, model, \
         optimizer, schedule, training, validation, decoding\n  there is a dropout in [model]"
    );
    with(
        "positions = { kind = \"rotary\", thata = 2 }",
        "a.toml:6:32: [model.positions] of kind rotary: unknown key \"thata\": did you mean theta?\n  \
         known: theta, kind",
    );
    with(
        "encoder_attention = { kind = \"flash\", window = 3 }",
        "a.toml:6:39: model.encoder_attention.window is a key of sliding-window, local-m, local-p, \
         longformer, and model.encoder_attention.kind is flash\n  flash has no keys of its own",
    );
}

#[test]
fn unknown_words_are_told_with_the_nearest() {
    with(
        "norm = \"prre\"",
        "a.toml:6:8: model.norm: unknown word \"prre\": did you mean pre?\n  known: pre, post",
    );
    with(
        "[schedule]\nkind = \"cosin\"",
        "a.toml:7:8: schedule.kind: unknown word \"cosin\": did you mean cosine?\n  \
         known: constant, noam, inverse-square-root, cosine, plateau",
    );
    with(
        "[backend]\nword = \"wpgu\"",
        "a.toml:7:8: backend.word: unknown backend \"wpgu\": did you mean wgpu?\n  \
         known: flex, ndarray, wgpu, vulkan, tch, tch-cpu, tch-cuda, cuda, cpu",
    );
    let unknown = said(&format!("{REVERSE}cross_attention = \"flush\""));
    let start = "a.toml:6:19: model.cross_attention: unknown word \"flush\": did you mean flash?\n  \
                 known: standard, flash, ";
    assert!(unknown.starts_with(start), "{unknown}");
    let unknown = said(&format!(
        "{REVERSE}cross_attention = {{ kind = \"additve\" }}"
    ));
    let start = "a.toml:6:28: model.cross_attention.kind: unknown word \"additve\": \
                 did you mean additive?";
    assert!(unknown.starts_with(start), "{unknown}");
}

#[test]
fn wrong_types_and_ranges_are_told_with_what_is_allowed() {
    for (line, message) in [
        (
            "layers = 0",
            "6:10: model.layers must be a whole number from 1 to 4096, found 0",
        ),
        (
            "layers = 2.0",
            "6:10: model.layers must be a whole number from 1 to 4096, found 2.0",
        ),
        (
            "layers = \"four\"",
            "6:10: model.layers must be a whole number from 1 to 4096, found \"four\"",
        ),
        (
            "layers = 99999999999999999999",
            "6:10: model.layers must be a whole number from 1 to 4096, found 99999999999999999999",
        ),
        (
            "dropout = 1",
            "6:11: model.dropout must be a number at least 0 and below 1, found 1",
        ),
        (
            "dropout = nan",
            "6:11: model.dropout must be a number at least 0 and below 1, found NaN",
        ),
        ("bias = 1", "6:8: model.bias must be true or false, found 1"),
        (
            "norm = 3",
            "6:8: model.norm must be one of pre, post, found 3",
        ),
        (
            "positions = 3",
            "6:13: model.positions must be one of none, sinusoidal, learned, rotary, alibi, or a \
             table with it as kind and its sizes, found 3",
        ),
        (
            "positions = { theta = 3 }",
            "6:13: model.positions.kind is missing: it must be one of none, sinusoidal, learned, \
             rotary, alibi",
        ),
        (
            "positions = { kind = \"rotary\", theta = 0 }",
            "6:40: model.positions.theta must be a number above 0, found 0",
        ),
        (
            "[run]\nname = 1998-05-03",
            "7:8: run.name must be text in quotes, found 1998-05-03",
        ),
        (
            "[run]\noutput = \"\"",
            "7:10: run.output must be a path in quotes, found \"\"",
        ),
        (
            "[backend]\ndevices = 2",
            "7:11: backend.devices must be a list of device numbers, as [0, 1], found 2",
        ),
        (
            "[backend]\nword = 3",
            "7:8: backend.word must be a backend's word in quotes, as \"flex\" or \"wgpu:0\", \
             found 3",
        ),
    ] {
        with(line, &format!("a.toml:{message}"));
    }
    assert_eq!(
        said("run = 3\n[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\""),
        "a.toml:1:7: run must be a section: [run], found 3"
    );
}

#[test]
fn what_cannot_be_left_out_is_told() {
    let models = "transformer, seq2seq, han, gpt, classifier";
    let kinds = "copy, reverse, sort, dates, recall, listops, documents, phrases, parallel, \
                 labelled, plain";
    assert_eq!(
        said("[model]\nlayers = 3"),
        format!(
            "a.toml:1:1: data.kind is missing: it must be one of {kinds}\n\
             a.toml:1:1: model.kind is missing: it must be one of {models}"
        )
    );
    of(
        "kind = \"parallel\"",
        "kind = \"transformer\"",
        "a.toml:1:1: data.train is missing: it must be a path in quotes, or a list of two",
    );
}

#[test]
fn independent_mistakes_are_told_together_in_their_order() {
    let said = said(&format!(
        "{REVERSE}heads = 0\nnorm = \"in\"\n[training]\nkeep = -1\n"
    ));
    let places: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("a.toml"))
        .map(|line| &line[..12])
        .collect();
    assert_eq!(places, ["a.toml:6:9: ", "a.toml:7:8: ", "a.toml:9:8: "]);
}

#[test]
fn a_model_must_fit_the_data() {
    for (data, model, message) in [
        (
            "kind = \"parallel\"\ntrain = \"a\"",
            "han",
            "a.toml:5:8: model.kind: han does not fit data.kind = \"parallel\", which has pairs of \
             texts: that is for transformer or seq2seq, and han is for documents or labelled",
        ),
        (
            "kind = \"labelled\"\ntrain = \"a\"",
            "gpt",
            "a.toml:5:8: model.kind: gpt does not fit data.kind = \"labelled\", which has classes of \
             texts: that is for han or classifier, and gpt is for plain",
        ),
        (
            "kind = \"listops\"",
            "han",
            "a.toml:4:8: model.kind: han does not fit data.kind = \"listops\", which has classes of \
             texts without sentences: that is for classifier, and han is for documents or labelled",
        ),
        (
            "kind = \"plain\"\ntrain = \"a\"",
            "seq2seq",
            "a.toml:5:8: model.kind: seq2seq does not fit data.kind = \"plain\", which has text \
             alone: that is for gpt, and seq2seq is for copy, reverse, sort, dates, recall, phrases \
             or parallel",
        ),
    ] {
        of(data, &format!("kind = \"{model}\""), message);
    }
    with(
        "[validation]\nmetric = \"accuracy\"",
        "a.toml:7:10: validation.metric: there is no accuracy of data.kind = \"reverse\"; it can be loss, \
         perplexity, exact, bleu, chrf",
    );
    of(
        "kind = \"plain\"\ntrain = \"a\"",
        "kind = \"gpt\"\n[validation]\nbleu_tokenizer = \"zh\"",
        "a.toml:7:18: validation.bleu_tokenizer: there is no bleu of data.kind = \"plain\"; leave it out",
    );
}

#[test]
fn keys_must_fit_each_other() {
    for (addition, message) in [
        (
            "heads = 3",
            "6:9: model.heads: d_model = 128 must be a multiple of heads = 3, or d_head must be given",
        ),
        (
            "d_model = 6",
            "6:11: model.d_model: d_model = 6 must be a multiple of heads = 4, or d_head must be given",
        ),
        (
            "layers = 3\nencoder_layers = 2\ndecoder_layers = 2",
            "6:10: model.layers: encoder_layers and decoder_layers both say otherwise; leave them \
             out",
        ),
        (
            "kv_heads = 3",
            "6:12: model.kv_heads: heads = 4 must be a multiple of kv_heads = 3",
        ),
        (
            "heads = 128\npositions = \"rotary\"",
            "7:13: model.positions: rotary turns pairs of numbers: d_head = 1 must be even",
        ),
        (
            "encoder_attention = \"retention\"",
            "6:21: model.encoder_attention: retention cannot be used for bidirectional \
             attention: it is causal",
        ),
        (
            "cross_attention = \"local\"",
            "6:19: model.cross_attention: sliding-window cannot be used for cross-attention: its \
             pattern is defined on a single sequence, and cross-attention has two",
        ),
        (
            "decoder_attention = \"strided\"",
            "6:21: model.decoder_attention: strided cannot decode token by token: without \
             `stride`, it is sqrt(seq_k), which grows while decoding",
        ),
        (
            "attention_dropout = 0.1\nencoder_attention = \"linear\"",
            "6:21: model.attention_dropout: attention_dropout is not supported by \
             model.encoder_attention = linear: it computes no scores or weights",
        ),
        (
            "positions = \"alibi\"\nencoder_attention = \"lsh\"",
            "6:13: model.positions: alibi is not supported by model.encoder_attention = lsh: it \
             sorts positions by their hashes",
        ),
        (
            "d_head = 5\npositions = \"rotary\"",
            "7:13: model.positions: rotary turns pairs of numbers: d_head = 5 must be even",
        ),
        (
            "temperature = 2.0\ndecoder_attention = \"linear\"",
            "6:15: model.temperature: temperature is not supported by model.decoder_attention = \
             linear: it computes no scores or weights",
        ),
        (
            "softcap = 30\ncross_attention = \"performer\"",
            "6:11: model.softcap: softcap is not supported by model.cross_attention = performer: \
             it computes no scores or weights",
        ),
        (
            "entropy_penalty = 0.1\nencoder_attention = \"local-p\"",
            "6:19: model.entropy_penalty: entropy_penalty is not supported by \
             model.encoder_attention = local-p: its weights do not sum to one",
        ),
        (
            "kv_heads = 2\nencoder_attention = \"multi-query\"",
            "6:12: model.kv_heads: kv_heads = 2 was given to multi-query, which has 1 of them",
        ),
        (
            "encoder_attention = { kind = \"grouped-query\", kv_heads = 3 }",
            "6:21: model.encoder_attention: heads = 4 must be a multiple of kv_heads = 3",
        ),
        (
            "tying = \"all\"\n[tokenizer]\nvocabulary = \"separate\"",
            "6:9: model.tying: all vectors can be shared only where tokenizer.vocabulary = \"joint\"",
        ),
        (
            "[tokenizer]\nload = \"a.json\"",
            "7:8: tokenizer.load: source and target have a vocabulary each: write a list of two \
             paths",
        ),
        (
            "[tokenizer]\nvocabulary = \"joint\"\nload = [\"a.json\", \"b.json\"]",
            "8:8: tokenizer.load: source and target have one vocabulary, and so one tokenizer: \
             write one path",
        ),
        (
            "[training]\nsteps = 3\nepochs = 4",
            "8:10: training.epochs: training.steps says how long already; leave one of them out",
        ),
        (
            "[backend]\ndtype = \"bf16\"\n[training]\nprecision = \"f16\"",
            "9:13: training.precision: weights are kept as backend.dtype = \"bf16\", so nothing is \
             computed in f16; write backend.dtype = \"f32\" for mixed precision",
        ),
        (
            "[training]\nloss_scale = \"dynamic\"",
            "7:14: training.loss_scale: gradients in f32 are not lost; it is for \
             training.precision = \"f16\"",
        ),
        (
            "[backend]\ndevices = [0, 1]",
            "7:11: backend.devices: \"flex\" has a single device and takes no index; write flex",
        ),
        (
            "[backend]\nword = \"wgpu\"\ndevices = [1, 1]",
            "8:11: backend.devices: device 1 is in the list twice",
        ),
        (
            "[backend]\nword = \"wgpu:0\"\ndevices = [0, 1]",
            "8:11: backend.devices: backend.word = \"wgpu:0\" says which device already; write \
             \"wgpu\", or no list",
        ),
        (
            "[run]\nname = \"a/b\"",
            "7:8: run.name must be the name of a folder, without slashes, found \"a/b\"",
        ),
        (
            "[decoding]\nmin_length = 200",
            "7:14: decoding.min_length must be at most max_length = 128, found 200",
        ),
        (
            "[decoding]\nstrategy = { kind = \"beam\", beams = 2000 }",
            "7:37: decoding.strategy.beams must be at most 1024, found 2000",
        ),
        (
            "[decoding]\nstrategy = { kind = \"beam\", beams = 2, n_best = 3 }",
            "7:49: decoding.strategy.n_best must be at most beams = 2, found 3",
        ),
    ] {
        with(addition, &format!("a.toml:{message}"));
    }
}

#[test]
fn data_must_fit_itself_and_the_model() {
    let parallel = "kind = \"parallel\"\ntrain = [\"a\", \"b\"]";
    let labelled = "kind = \"labelled\"\ntrain = \"a\"";
    for (data, model, message) in [
        (
            "kind = \"copy\"\nmin_length = 20",
            "transformer",
            "3:14: data.min_length must be at most max_length = 12, found 20",
        ),
        (
            "kind = \"copy\"\nmax_length = 2",
            "transformer",
            "3:14: data.min_length must be at most max_length = 2, found 4",
        ),
        (
            "kind = \"dates\"\nfirst_year = 2100",
            "seq2seq",
            "3:14: data.first_year must be at most last_year = 2049, found 2100",
        ),
        (
            "kind = \"dates\"\nlast_year = 20000",
            "seq2seq",
            "3:13: data.last_year must be a year of four digits, found 20000",
        ),
        (
            "kind = \"documents\"\nclasses = 9",
            "han",
            "3:11: data.classes must be at most 8, found 9",
        ),
        (
            "kind = \"documents\"\ndecoys = 3",
            "han",
            "3:10: data.decoys: key_sentences = 2 and decoys = 3 need documents of 5 sentences, \
             and min_sentences = 4",
        ),
        (
            "kind = \"documents\"\nmin_words = 13",
            "classifier",
            "3:13: data.min_words must be at most max_words = 12, found 13",
        ),
        (
            "kind = \"recall\"\nmax_keys = 27",
            "seq2seq",
            "3:12: data.max_keys must be at most 26, the letters there are, found 27",
        ),
        (
            &format!("{parallel}\nvalid = [\"c\", \"d\"]\nvalid_share = 0.1"),
            "transformer",
            "5:15: data.valid_share: data.valid is given too; leave one of them out",
        ),
        (
            &format!("{parallel}\ntest_share = 0.9"),
            "transformer",
            "4:14: data.test_share: with data.valid_share = 0.1 and data.test_share = 0.9 nothing \
             is left to learn from: both together must be below 1",
        ),
        (
            &format!("{parallel}\nsource_column = 3"),
            "transformer",
            "4:17: data.source_column: there are no columns where source and target are two files",
        ),
        (
            &format!("{labelled}\nmax_length = 300"),
            "han",
            "4:14: data.max_length: han has no use for it; max_sentences and max_words limit its \
             documents",
        ),
        (
            &format!("{labelled}\nsentences = \"lines\""),
            "classifier",
            "4:13: data.sentences: classifier has no use for it; max_length limits its texts",
        ),
        (
            &format!("{labelled}\n[tokenizer]\nvocabulary = \"joint\""),
            "han",
            "5:14: tokenizer.vocabulary: data.kind = \"labelled\" has one text, and so one \
             vocabulary; leave it out",
        ),
        (
            &format!("{labelled}\n[decoding]\nmax_length = 3"),
            "han",
            "4:1: decoding: han says a class and writes no text; leave the section out",
        ),
    ] {
        of(
            data,
            &format!("kind = \"{model}\""),
            &format!("a.toml:{message}"),
        );
    }
    of(
        "kind = \"plain\"\ntrain = \"a\"",
        "kind = \"gpt\"\npositions = { kind = \"learned\", longest = 64 }",
        "a.toml:6:43: model.context must be at most positions.longest = 64, found 128",
    );
    of(
        "kind = \"plain\"\ntrain = \"a\"",
        "kind = \"gpt\"\nattention = \"bigbird\"",
        "a.toml:6:13: model.attention: bigbird cannot decode token by token: its global blocks at the end \
         depend on the final length; write validation.samples = 0 to train it without samples",
    );
    of(
        "kind = \"dates\"",
        "kind = \"seq2seq\"\nd_hidden = 9",
        "a.toml:5:12: model.d_hidden must be even, half for each direction of the encoder, found 9",
    );
    of(
        "kind = \"dates\"",
        "kind = \"seq2seq\"\ntying = \"decoder\"",
        "a.toml:5:9: model.tying: decoder needs vectors of one size, and d_embedding = 128, \
         d_hidden = 256; make them the same, or write none",
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let path = std::path::Path::new("no/such.toml");
    let error = Config::read(path, &[]).expect_err("there is none");
    assert!(matches!(error, ConfigError::Read { .. }));
    let said = error.to_string();
    assert!(
        said.starts_with("no/such.toml: the config cannot be read: "),
        "{said}"
    );
}

#[test]
fn a_template_that_is_not_there_gets_the_nearest() {
    let said = zoo_config::template("transfomer")
        .expect_err("misspelt")
        .to_string();
    assert_eq!(
        said,
        "unknown template \"transfomer\": did you mean transformer?\n  \
         known: transformer, seq2seq, han, gpt, classifier"
    );
}
