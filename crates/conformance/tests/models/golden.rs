//! Models with PyTorch's weights against outputs of PyTorch, which `golden/models.py` wrote.

use zoo_models::weights::import;
use zoo_models::{Documents, Gpt, HanConfig, ModelError, TransformerConfig};

use crate::support::*;

/// Maximum absolute error: logits are 1 to 10, and `f32` has seven digits.
const TOLERANCE: f64 = 1e-4;

pub(crate) fn trials(suite: &mut Suite) {
    type Test = fn(&Golden, &Device);
    let file = include_bytes!("../../golden/models.safetensors");
    let golden = must(Golden::from_bytes(file));
    let [post_relu, pre_gelu] = ["transformer-post-relu", "transformer-pre-gelu"];
    // The prefix of the tensors, and the name of the trial.
    let tests: [(&str, &str, Test); 9] = [
        (post_relu, post_relu, |golden, device| {
            transformer(golden, Norm::Post, Activation::Relu, device);
        }),
        (pre_gelu, pre_gelu, |golden, device| {
            transformer(golden, Norm::Pre, Activation::Gelu, device);
        }),
        (post_relu, "transformer-tied", transformer_tied),
        ("gpt2", "gpt2", |golden, device| {
            check_gpt2(golden, weights(golden), device)
        }),
        ("gpt2", "gpt2-with-linear-layers", gpt2_as_linear),
        ("gpt2", "gpt2-from-torch-save", gpt2_as_saved),
        ("gpt2", "gpt2-errors-name-the-key", gpt2_wrong),
        ("gpt2", "gpt2-damaged", gpt2_damaged),
        ("han", "han", han),
    ];
    for (case, name, test) in tests {
        let golden = golden.strip_prefix(&format!("{case}."));
        let name = format!("golden/pytorch-{name}");
        suite.add(name, move |device| test(&golden, device));
    }
}

/// The weights of a state dict.
fn weights(golden: &Golden) -> Weights {
    Weights::from_tensors(golden.strip_prefix("weights.").tensors)
}

fn integers(golden: &Golden, name: &str) -> Vec<i64> {
    let data = &golden.tensors[name];
    data.try_to_vec().expect("integers")
}

/// Tokens `[batch, seq]`, truncated to their lengths.
fn rows(golden: &Golden, name: &str, lengths: Option<&[i64]>) -> Vec<Vec<u32>> {
    let seq = golden.tensors[name].shape()[1];
    let ids = integers(golden, name);
    let row = |(row, ids): (usize, &[i64])| {
        let length = lengths.map_or(seq, |lengths| lengths[row] as usize);
        ids[..length].iter().map(|id| *id as u32).collect()
    };
    ids.chunks(seq).enumerate().map(row).collect()
}

fn assert_matches_golden<const D: usize>(golden: &Golden, name: &str, got: Tensor<D>) {
    let expected = golden.values(name);
    let got = to_vec(got);
    assert_eq!(got.len(), expected.len(), "{name}");
    let error = |(got, expected): (&f32, &f64)| (f64::from(*got) - expected).abs();
    let worst = got.iter().zip(&expected).map(error).fold(0.0, f64::max);
    let is_near = worst <= TOLERANCE && got.iter().all(|value| value.is_finite());
    assert!(is_near, "{name}: largest error {worst:.1e}");
}

fn small_transformer(source_vocabulary: usize) -> TransformerConfig {
    TransformerConfig::base(source_vocabulary, 11)
        .with_d_model(16)
        .with_n_heads(2)
        .with_layers(2)
        .with_d_feed_forward(Some(24))
        .with_tie_embeddings(Tying::None)
}

/// Tied embeddings are stored several times in PyTorch files.
fn transformer_tied(golden: &Golden, device: &Device) {
    let all = weights(golden);
    let target = all.get("target_embedding.weight").expect("listed key");
    let with = |same: &[&str]| {
        let mut tensors = tensors(&all);
        tensors.retain(|(key, _)| key != "output.bias");
        for (key, data) in &mut tensors {
            if same.contains(&key.as_str()) {
                *data = target.clone();
            }
        }
        Weights::from_tensors(tensors)
    };
    let everywhere = ["source_embedding.weight", "output.weight"];
    for (tie_embeddings, same, source) in [
        (Tying::All, &everywhere[..], 11),
        (Tying::Decoder, &everywhere[1..], 13),
    ] {
        let model = small_transformer(source)
            .with_tie_embeddings(tie_embeddings)
            .init(device);
        must(must(import::nn_transformer(with(same))).apply(model));
    }
    // An untied output and two equal embeddings.
    let model = small_transformer(11).init(device);
    let weights = must(import::nn_transformer(with(&everywhere[..1])));
    assert_error(weights.apply(model), "key head.bias is missing");
}

fn transformer(golden: &Golden, norm: Norm, activation: Activation, device: &Device) {
    let model = small_transformer(13)
        .with_norm(norm)
        .with_activation(activation)
        .init(device);
    let model = must(must(import::nn_transformer(weights(golden))).apply(model));
    let lengths = integers(golden, "lengths");
    let source = rows(golden, "source", Some(&lengths));
    let source = tokens(&source, model.source_limits(), device);
    let target = rows(golden, "target", None);
    let target = tokens(&target, model.target_limits(), device);
    assert_matches_golden(golden, "logits", model.forward(&source, &target));
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
    let document = rows(golden, "document", Some(&integers(golden, "lengths")));
    // In a batch with a shorter document, which has no effect.
    let other = vec![document[1].clone()];
    let documents = must(Documents::new(&[document, other], model.limits(), device));
    let output = model.forward(&documents);
    assert_matches_golden(golden, "logits", output.logits.slice_dim(0, 0..1));
    let (words, sentences) = (output.word_weights, output.sentence_weights);
    assert_matches_golden(golden, "word_weights", words.slice_dim(0, 0..1));
    assert_matches_golden(golden, "sentence_weights", sentences.slice_dim(0, 0..1));
}

fn small_gpt2(vocabulary: usize) -> GptConfig {
    GptConfig::new(vocabulary, 16, 2, 2).with_positions(PositionEncoding::learned(12))
}

fn read_gpt2(weights: Result<Weights, ModelError>, device: &Device) -> Result<Gpt, ModelError> {
    let weights = weights.and_then(import::gpt2)?;
    weights.apply(small_gpt2(17).init(device))
}

fn check_gpt2(golden: &Golden, weights: Weights, device: &Device) {
    let model = must(read_gpt2(Ok(weights), device));
    let tokens = tokens(&rows(golden, "tokens", None), model.limits(), device);
    assert_matches_golden(golden, "logits", model.forward(&tokens));
}

/// As saved by models with linear layers: transposed matrices, a copy of the head, a prefix, and
/// masks.
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
    let embedding = published.get("wte.weight").expect("listed key").clone();
    tensors.push(("lm_head.weight".to_owned(), embedding));
    let mask = TensorData::ones::<f32, _>([1, 1, 2, 2]);
    tensors.push(("transformer.h.0.attn.bias".to_owned(), mask));
    check_gpt2(golden, Weights::from_tensors(tensors), device);
}

fn gpt2_as_saved(golden: &Golden, device: &Device) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/gpt2.pt");
    check_gpt2(golden, must(Weights::read(file)), device);
}

/// A file of torch.save that is truncated or has a flipped bit: an error, or the same weights.
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
    let intact = Weights::from_model(&must(reads(file)));
    for offset in (0..file.len()).step_by(file.len() / 120) {
        let mut bytes = file.to_vec();
        bytes[offset] ^= 0x10;
        if let Ok(model) = reads(&bytes) {
            let read = Weights::from_model(&model);
            let are_equal = intact.keys().all(|key| intact.get(key) == read.get(key));
            assert!(are_equal, "byte {offset} changed the weights");
        }
    }
    must(std::fs::remove_file(&path));
}

fn gpt2_wrong(golden: &Golden, device: &Device) {
    let all = weights(golden);
    let without = |missing: &str| {
        let mut tensors = tensors(&all);
        tensors.retain(|(key, _)| key != missing);
        Weights::from_tensors(tensors)
    };
    for (key, named) in [
        ("h.1.mlp.c_fc.bias", "layers.1.feed_forward.inner.bias"),
        ("h.1.ln_2.weight", "h.1.ln_2.weight"),
        ("h.1.attn.c_attn.weight", "h.1.attn.c_attn.weight"),
        ("h.0.attn.c_attn.weight", "h.0.attn.c_attn.weight"),
    ] {
        let read = read_gpt2(Ok(without(key)), device);
        assert_error(read, &format!("key {named} is missing"));
    }

    let larger = small_gpt2(18).init(device);
    let message = "tensor embedding.weight (wte.weight in the file): expected shape [18, 16], got \
                   [17, 16]\n  help: create the model with the config that the weights were \
                   trained with";
    assert_error(must(import::gpt2(weights(golden))).apply(larger), message);
}
