//! Recent mechanisms against outputs and gradients of reference implementations, which
//! `golden/recent.py` and `golden/native_sparse.py` wrote.

use zoo_attention::RelativeBuckets;
use zoo_attention::flash::{flash, flash_with_sink};
use zoo_attention::mechanisms::delta::delta_rule;
use zoo_attention::mechanisms::differential::{differential, lambda};
use zoo_attention::mechanisms::forgetting::forgetting;
use zoo_attention::mechanisms::gla::gated_linear;
use zoo_attention::mechanisms::linear::linear;
use zoo_attention::mechanisms::native_sparse::native_sparse;
use zoo_attention::mechanisms::{NativeSparse, Nystrom, nystrom::nystrom};
use zoo_attention::scan::FeatureMap;

use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite) {
    let file = include_bytes!("../../golden/recent.safetensors");
    let script = include_str!("../../golden/recent.py");
    trials_of_file(suite, "recent", file, script, check_case);
    let file = include_bytes!("../../golden/native_sparse.safetensors");
    let script = include_str!("../../golden/native_sparse.py");
    trials_of_file(suite, "native-sparse", file, script, check_case);
}

/// Adds a trial for each case of a golden file, and one for the version and the seed in its script.
pub(crate) fn trials_of_file(
    suite: &mut Suite,
    file: &str,
    bytes: &[u8],
    script: &'static str,
    check: fn(&Golden, &str, &Device),
) {
    let golden = must(Golden::from_bytes(bytes));
    for case in golden.metadata["cases"].split(' ') {
        let (case, golden) = (case.to_owned(), golden.strip_prefix(&format!("{case}.")));
        suite.add_training(format!("golden/{file}/{case}"), move |device| {
            check(&golden, &case, device);
        });
    }
    let name = format!("golden/{file}/file-matches-its-script");
    suite.add(name, move |_| {
        let [torch, seed] = ["torch", "seed"].map(|key| &golden.metadata[key]);
        let head = format!("PyTorch {torch}, seed {seed}.");
        assert!(script.contains(&head), "{head:?} is not in the script");
    });
}

fn check_case(golden: &Golden, case: &str, device: &Device) {
    let mechanism: Mechanism = must(case.parse());
    let four = |name: &str| {
        let tensor: Option<Tensor<4>> = golden.tensor(name, device);
        tensor.map(Tensor::require_grad)
    };
    let [query, key, value] = ["query", "key", "value"].map(|name| four(name).expect(name));
    let (log_decay, strength) = (four("log_decay"), four("strength"));
    let branch_gates = four("branch_gates");
    let sink: Option<Tensor<1>> = golden.tensor("sink", device);
    let sink = sink.map(Tensor::require_grad);
    let two = |name: &str| {
        let tensor: Option<Tensor<2>> = golden.tensor(name, device);
        tensor.map(Tensor::require_grad)
    };
    let (table, vectors) = (two("table"), two("vectors"));
    let inputs = [query.clone(), key.clone(), value.clone()];
    let [q, k, v] = inputs.clone();
    let causal = AttentionOptions::new().with_pattern(Pattern::Causal);
    let gate = |gate: &Option<Tensor<4>>| gate.clone().expect("a gate");
    let output = match mechanism {
        Mechanism::Forgetting => {
            let [batch, heads, seq, _] = q.dims();
            let log_decay = gate(&log_decay).reshape([batch, heads, seq]);
            forgetting(q, k, v, log_decay, &causal)
        }
        Mechanism::Mamba2 => {
            let options = causal.with_scale(1.0);
            gated_linear(q, k, v, gate(&log_decay), strength.clone(), &options)
        }
        Mechanism::Gla => gated_linear(q, k, v, gate(&log_decay), None, &causal),
        Mechanism::Delta | Mechanism::GatedDelta | Mechanism::Kda => {
            delta_rule(q, k, v, log_decay.clone(), gate(&strength), &causal)
        }
        Mechanism::Sink => flash_with_sink(q, k, v, sink.clone().expect("sinks"), &causal),
        Mechanism::Relative => {
            let buckets = RelativeBuckets {
                num_buckets: 12,
                max_distance: 40,
                is_bidirectional: false,
            };
            let [_, _, seq, _] = q.dims();
            let bias = buckets.bias(table.clone().expect("a table"), seq, seq);
            flash(q, k, v, &causal.with_relative_bias(bias))
        }
        Mechanism::Differential => {
            let lambda_init = must(golden.metadata["lambda_init"].parse());
            let lambda = lambda(vectors.clone().expect("vectors"), lambda_init);
            differential(q, k, v, lambda, &causal)
        }
        Mechanism::Based => linear(q, k, v, FeatureMap::Taylor, &causal),
        Mechanism::Nystrom => {
            let config = Nystrom {
                landmarks: must(golden.metadata["landmarks"].parse()),
                iterations: 6,
            };
            nystrom(q, k, v, &config, &AttentionOptions::new())
        }
        Mechanism::NativeSparse => {
            let size = |key: &str| must(golden.metadata[key].parse());
            let config = NativeSparse {
                block_size: size("block_size"),
                top_k: size("top_k"),
                window: size("window"),
            };
            native_sparse(q, k, v, gate(&branch_gates), &config, &causal)
        }
        other => panic!("no case for {other}"),
    };
    let upstream: Tensor<4> = golden.tensor("upstream", device).expect("upstream");
    // The scripts compute in f32, too: the same errors once more.
    let tolerance = Precision::F32.backward(8.0);
    let values = golden.values("output");
    must(tolerance.check("output", &to_vec(output.clone()), &values));
    let gradients = (output * upstream).sum().backward();
    let check = |name: &str, gradient: Vec<f32>| {
        let want = golden.values(&format!("d_{name}"));
        must(tolerance.check(name, &gradient, &want));
    };
    let [query, key, value] = inputs;
    for (name, tensor) in [
        ("query", Some(query)),
        ("key", Some(key)),
        ("value", Some(value)),
        ("log_decay", log_decay),
        ("strength", strength),
        ("branch_gates", branch_gates),
    ] {
        if let Some(tensor) = tensor {
            check(name, to_vec(tensor.grad(&gradients).expect("a gradient")));
        }
    }
    for (name, tensor) in [("table", table), ("vectors", vectors)] {
        if let Some(tensor) = tensor {
            check(name, to_vec(tensor.grad(&gradients).expect("a gradient")));
        }
    }
    if let Some(sink) = sink {
        check("sink", to_vec(sink.grad(&gradients).expect("a gradient")));
    }
}
