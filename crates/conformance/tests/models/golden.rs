//! Models with PyTorch's weights give what PyTorch gave: `golden/models.py` wrote down what
//! that is.

use burn::tensor::{Device, Tensor, TensorData};
use zoo_models::weights::{Weights, WeightsError, import};
use zoo_models::{
    Activation, Documents, Gpt, GptConfig, HanConfig, Norm, PositionEncoding, TransformerConfig,
    Tying,
};

use crate::support::*;

/// How far a number may be off: logits are of the size of 1 to 10, and `f32` holds seven digits.
const NEAR: f64 = 1e-4;

pub(crate) fn trials(suite: &mut Suite) {
    type Test = fn(&Golden, &Device);
    let golden = must(Golden::from_bytes(include_bytes!(
        "../../golden/models.safetensors"
    )));
    let post_relu: Test = |golden, device| {
        transformer(golden, Norm::Post, Activation::Relu, device);
    };
    let pre_gelu: Test = |golden, device| {
        transformer(golden, Norm::Pre, Activation::Gelu, device);
    };
    let tests: [(&str, &str, Test); 9] = [
        ("transformer-post-relu", "", post_relu),
        ("transformer-pre-gelu", "", pre_gelu),
        (
            "transformer-post-relu",
            "transformer, tied",
            transformer_tied,
        ),
        ("gpt2", "", |golden, device| {
            gpt2_gives(golden, weights(golden), device)
        }),
        ("gpt2", "gpt2 as linear layers", gpt2_as_linear),
        ("gpt2", "gpt2 as torch.save wrote it", gpt2_as_saved),
        ("gpt2", "gpt2, what is wrong is named", gpt2_wrong),
        ("gpt2", "gpt2, damaged", gpt2_damaged),
        ("han", "", han),
    ];
    for (case, name, test) in tests {
        let name = if name.is_empty() { case } else { name };
        let golden = golden.under(&format!("{case}."));
        let name = format!("golden/pytorch-{name}");
        suite.add(name, move |device| test(&golden, device));
    }
}

/// What a state dict would have.
fn weights(golden: &Golden) -> Weights {
    Weights::of_tensors(golden.under("weights.").tensors)
}

fn whole(golden: &Golden, name: &str) -> Vec<i64> {
    let data = &golden.tensors[name];
    data.try_to_vec().expect("whole numbers")
}

/// Tokens `[batch, seq]`, cut to their lengths.
fn rows(golden: &Golden, name: &str, lengths: Option<&[i64]>) -> Vec<Vec<u32>> {
    let seq = golden.tensors[name].shape()[1];
    let ids = whole(golden, name);
    let row = |(row, ids): (usize, &[i64])| {
        let length = lengths.map_or(seq, |lengths| lengths[row] as usize);
        ids[..length].iter().map(|id| *id as u32).collect()
    };
    ids.chunks(seq).enumerate().map(row).collect()
}

fn same<const D: usize>(golden: &Golden, name: &str, got: Tensor<D>) {
    let expected = golden.numbers(name);
    let got = numbers(got);
    assert_eq!(got.len(), expected.len(), "{name}");
    let error = |(got, expected): (&f32, &f64)| (f64::from(*got) - expected).abs();
    let worst = got.iter().zip(&expected).map(error).fold(0.0, f64::max);
    let is_near = worst <= NEAR && got.iter().all(|number| number.is_finite());
    assert!(is_near, "{name} are off by up to {worst:.1e}");
}

fn small_transformer(source_vocabulary: usize) -> TransformerConfig {
    TransformerConfig::base(source_vocabulary, 11)
        .with_d_model(16)
        .with_heads(2)
        .with_layers(2)
        .with_d_feed_forward(Some(24))
        .with_tying(Tying::None)
}

/// Vectors that are one in PyTorch are there several times in its files.
fn transformer_tied(golden: &Golden, device: &Device) {
    let all = weights(golden);
    let target = all.get("target_embedding.weight").expect("its own key");
    let with = |same: &[&str]| {
        let mut tensors = tensors(&all);
        tensors.retain(|(key, _)| key != "output.bias");
        for (_, data) in tensors
            .iter_mut()
            .filter(|(key, _)| same.contains(&key.as_str()))
        {
            *data = target.clone();
        }
        Weights::of_tensors(tensors)
    };
    let everywhere = ["source_embedding.weight", "output.weight"];
    for (tying, same, source) in [
        (Tying::All, &everywhere[..], 11),
        (Tying::Decoder, &everywhere[1..], 13),
    ] {
        let model = small_transformer(source).with_tying(tying).init(device);
        must(must(import::nn_transformer(with(same))).apply(model));
    }
    // An output of its own beside two embeddings that are equal.
    let model = small_transformer(11).init(device);
    let weights = must(import::nn_transformer(with(&everywhere[..1])));
    let error = weights
        .apply(model)
        .expect_err("the output has no bias here");
    assert_eq!(error.to_string(), "key head.bias is missing");
}

fn transformer(golden: &Golden, norm: Norm, activation: Activation, device: &Device) {
    let model = small_transformer(13)
        .with_norm(norm)
        .with_activation(activation)
        .init(device);
    let model = must(must(import::nn_transformer(weights(golden))).apply(model));
    let lengths = whole(golden, "lengths");
    let source = rows(golden, "source", Some(&lengths));
    let source = tokens(&source, model.source_limits(), device);
    let target = rows(golden, "target", None);
    let target = tokens(&target, model.target_limits(), device);
    same(golden, "logits", model.forward(&source, &target));
}

fn han(golden: &Golden, device: &Device) {
    let model = HanConfig::new(19, 3)
        .with_d_embedding(6)
        .with_d_word(5)
        .with_d_sentence(5)
        .with_d_attention(7)
        .with_dropout(0.0)
        .init(device);
    let model = must(must(import::nn_gru_han(weights(golden))).apply(model));
    let document = rows(golden, "document", Some(&whole(golden, "lengths")));
    // Beside one that is shorter, which changes nothing.
    let other = vec![document[1].clone()];
    let documents = must(Documents::new(&[document, other], model.limits(), device));
    let judged = model.forward(&documents);
    same(golden, "logits", judged.logits.slice_dim(0, 0..1));
    let (words, sentences) = (judged.word_weights, judged.sentence_weights);
    same(golden, "word_weights", words.slice_dim(0, 0..1));
    same(golden, "sentence_weights", sentences.slice_dim(0, 0..1));
}

fn small_gpt2() -> GptConfig {
    GptConfig::new(17, 16, 2, 2).with_positions(PositionEncoding::learned(12))
}

fn read_gpt2(weights: Result<Weights, WeightsError>, device: &Device) -> Result<Gpt, WeightsError> {
    let weights = weights.and_then(import::gpt2)?;
    weights.apply(small_gpt2().init(device))
}

fn gpt2_gives(golden: &Golden, weights: Weights, device: &Device) {
    let model = must(read_gpt2(Ok(weights), device));
    let tokens = tokens(&rows(golden, "tokens", None), model.limits(), device);
    same(golden, "logits", model.forward(&tokens));
}

/// As models that are trained anew have it: matrices the other way round, the head there
/// again, all below a name, masks saved along.
fn gpt2_as_linear(golden: &Golden, device: &Device) {
    let published = weights(golden);
    let is_matrix = |key: &str| key.contains(".c_") && key.ends_with(".weight");
    let mut tensors = tensors(&published);
    for (key, data) in &mut tensors {
        if is_matrix(key) {
            let matrix = Tensor::<2>::from_data(data.clone(), device);
            *data = matrix.transpose().into_data();
        }
        *key = format!("transformer.{key}");
    }
    let embedding = published.get("wte.weight").expect("its own key").clone();
    tensors.push(("lm_head.weight".to_owned(), embedding));
    let mask = TensorData::ones::<f32, _>([1, 1, 2, 2]);
    tensors.push(("transformer.h.0.attn.bias".to_owned(), mask));
    gpt2_gives(golden, Weights::of_tensors(tensors), device);
}

fn gpt2_as_saved(golden: &Golden, device: &Device) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/gpt2.pt");
    gpt2_gives(golden, must(Weights::read(file)), device);
}

/// What torch.save wrote, cut short anywhere or with a bit turned: refused, or the same.
fn gpt2_damaged(_: &Golden, device: &Device) {
    let file = include_bytes!("../../golden/gpt2.pt");
    let path = std::env::temp_dir().join(format!("zoo-damaged-{}.pt", std::process::id()));
    let reads = |bytes: &[u8]| {
        must(std::fs::write(&path, bytes));
        read_gpt2(Weights::read(&path), device)
    };
    for length in (0..file.len()).step_by(file.len() / 40) {
        assert!(reads(&file[..length]).is_err(), "{length} bytes");
    }
    let whole = Weights::of(&must(reads(file)));
    for at in (0..file.len()).step_by(file.len() / 120) {
        let mut bytes = file.to_vec();
        bytes[at] ^= 0x10;
        if let Ok(model) = reads(&bytes) {
            let read = Weights::of(&model);
            let are_equal = whole.keys().all(|key| whole.get(key) == read.get(key));
            assert!(
                are_equal,
                "byte {at} was turned, and other numbers were read"
            );
        }
    }
    must(std::fs::remove_file(&path));
}

fn gpt2_wrong(golden: &Golden, device: &Device) {
    let whole = weights(golden);
    let without = |missing: &str| {
        let mut tensors = tensors(&whole);
        tensors.retain(|(key, _)| key != missing);
        Weights::of_tensors(tensors)
    };
    let message = |missing: &str| {
        let loaded = read_gpt2(Ok(without(missing)), device);
        loaded
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let missing = message("h.1.mlp.c_fc.bias");
    assert_eq!(missing, "key layers.1.feed_forward.inner.bias is missing");
    for key in [
        "h.1.ln_2.weight",
        "h.1.attn.c_attn.weight",
        "h.0.attn.c_attn.weight",
    ] {
        assert_eq!(message(key), format!("key {key} is missing"));
    }

    let larger = GptConfig::new(18, 16, 2, 2)
        .with_positions(PositionEncoding::learned(12))
        .init(device);
    let error = must(import::gpt2(weights(golden))).apply(larger);
    assert_eq!(
        error.expect_err("one token more").to_string(),
        "key embedding.weight (wte.weight in the file) must be [18, 16], got [17, 16]"
    );
}
