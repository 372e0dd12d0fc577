//! Mechanisms against outputs and gradients of their authors' code, which `golden/authors.py` called.

use zoo_attention::mechanisms::linformer::linformer;
use zoo_attention::mechanisms::{Lightning, Moba};

use super::recent::trials_of_file;
use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite) {
    let file = include_bytes!("../../golden/authors.safetensors");
    let script = include_str!("../../golden/authors.py");
    trials_of_file(suite, "authors", file, script, check_case);
}

fn check_case(golden: &Golden, case: &str, device: &Device) {
    let input = |name: &str| {
        let tensor: Option<Tensor<4>> = golden.tensor(name, device);
        tensor.expect("every case has one").require_grad()
    };
    let inputs = ["query", "key", "value"].map(input);
    let [query, key, value] = inputs.clone();
    let projection: Option<Tensor<3>> = golden.tensor("projection", device);
    let projection = projection.map(Tensor::require_grad);
    let (name, pattern) = match case.strip_suffix("/causal") {
        Some(name) => (name, Pattern::Causal),
        None => (case, Pattern::Full),
    };
    let options = AttentionOptions::new().with_pattern(pattern);
    let output = match &projection {
        Some(projection) => {
            let size = |key: &str| must::<usize, _>(golden.metadata[key].parse());
            assert_eq!(
                (name, projection.dims()),
                ("linformer", [2, size("rank"), size("length")])
            );
            linformer(query, key, value, projection.clone(), &options)
        }
        None => attend(config(golden, name), query, key, value, &options),
    };
    // Some of the code computes in f32, too: the same errors once more.
    let tolerance = Precision::F32.backward(8.0);
    let check = |name: &str, got: Vec<f32>| must(tolerance.check(name, &got, &golden.values(name)));
    check("output", to_vec(output.clone()));
    let upstream: Option<Tensor<4>> = golden.tensor("upstream", device);
    let loss = (output * upstream.expect("every case has one")).sum();
    let gradients = loss.backward();
    for (name, input) in ["d_query", "d_key", "d_value"].into_iter().zip(&inputs) {
        check(name, gradient_or_zeros(input, &gradients));
    }
    if let Some(projection) = projection {
        let gradient = projection.grad(&gradients).expect("a gradient");
        check("d_projection", to_vec(gradient));
    }
}

/// The mechanism of a case, with the sizes of the script.
fn config(golden: &Golden, name: &str) -> MechanismConfig {
    let value = |key: &str| &golden.metadata[key];
    match must(name.parse()) {
        Mechanism::Moba => MechanismConfig::Moba(Moba {
            block_size: must(value("block_size").parse()),
            top_k: must(value("top_k").parse()),
        }),
        Mechanism::Lightning => MechanismConfig::Lightning(Lightning {
            depth: must(value("depth").parse()),
            head_norm: false,
        }),
        // The others have no sizes, or those of the sequence.
        mechanism => mechanism.into(),
    }
}
