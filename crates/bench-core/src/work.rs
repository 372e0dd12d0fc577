//! FLOPs and minimum memory of a case. `zoo-bench` counts FLOPs and parameters of models.

use zoo_oracle::{FeatureMap, Formula, Parameter, Problem};
use zoo_spec::Dtype;

use crate::case::{Case, MATMUL_SIZE, Pass, Task};

impl Case {
    /// FLOPs of the matmuls over the visible query-key pairs; 0 for a model.
    pub fn flops(&self) -> f64 {
        match &self.task {
            Task::Matmul => 2.0 * (MATMUL_SIZE as f64).powi(3),
            Task::Attention { mechanism, problem } => {
                // Only the number of parameters matters.
                let parameters = |parameter: Parameter| vec![0.0; parameter.num_elements()];
                let resolved = problem.with_mechanism(&(*mechanism).into(), parameters);
                resolved.map_or(0.0, |problem| attention_flops(&problem, self.pass))
            }
            Task::BurnAttention { problem } => attention_flops(problem, self.pass),
            Task::Model { .. } => 0.0,
        }
    }

    /// Lower bound of the memory: inputs, outputs and gradients; for a model, its parameters, and
    /// in training also their gradients and Adam moments.
    pub fn minimum_bytes(&self, dtype: Dtype, parameters: Option<u64>) -> u64 {
        let elements = |shape: [usize; 4]| shape.iter().product::<usize>() as u64;
        let count = match (&self.task, self.pass) {
            (Task::Matmul, _) => 3 * MATMUL_SIZE.pow(2) as u64,
            (Task::Attention { problem, .. } | Task::BurnAttention { problem }, pass) => {
                let inputs = elements(problem.query_shape())
                    + elements(problem.key_shape())
                    + elements(problem.value_shape());
                let context = elements(problem.context_shape());
                match pass {
                    Pass::Forward | Pass::Decode | Pass::Generate => inputs + context,
                    // The output gradient is an input as well.
                    Pass::Train => 2 * inputs + 2 * context,
                }
            }
            // Parameters, gradients and two Adam moments.
            (Task::Model { .. }, Pass::Train) => 4 * parameters.unwrap_or(0),
            (Task::Model { .. }, _) => parameters.unwrap_or(0),
        };
        let bytes = match dtype {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
        };
        count * bytes
    }
}

fn attention_flops(problem: &Problem, pass: Pass) -> f64 {
    let forward = forward_flops(problem, pass);
    match pass {
        Pass::Forward | Pass::Decode | Pass::Generate => forward,
        // The backward pass has five matmuls, the forward pass two.
        Pass::Train => 3.5 * forward,
    }
}

fn forward_flops(problem: &Problem, pass: Pass) -> f64 {
    let softmax_flops = |density: f64| {
        let pairs = (problem.queries() * problem.seq_k) as f64;
        let width = (problem.d_head + problem.d_value) as f64;
        2.0 * pairs * density * width
    };
    let features = match &problem.formula {
        Formula::Softmax
        | Formula::Multiplicative(_)
        | Formula::Additive(_)
        | Formula::Sink(_)
        | Formula::Sigmoid(_)
        | Formula::Relative(_)
        | Formula::Forgetting(_)
        | Formula::Argmax
        | Formula::Sampled { .. } => return softmax_flops(problem.density()),
        // The scores of each half, and the weighted sums of both.
        Formula::Differential { .. } => {
            let pairs = (problem.queries() * problem.seq_k) as f64;
            let width = (problem.d_head + 2 * problem.d_value) as f64;
            return 2.0 * pairs * problem.density() * width;
        }
        // The position of the window depends on the query, so this is an upper bound.
        Formula::LocalPredictive { window, .. } => {
            return softmax_flops(problem.density_within(2 * window + 1));
        }
        Formula::Lsh(hashing) => {
            // Random projections, then attention to the keys of two chunks.
            let (visible, width) = (2 * hashing.bucket_size * hashing.n_hashes, problem.d_head);
            let hash = 2 * hashing.directions.len();
            let attend = visible.min(problem.seq_k) * (width + problem.d_value);
            return 2.0 * (problem.queries() * (hash + attend)) as f64;
        }
        Formula::BlockSelection(selection) => {
            // The scores of the blocks, and attention to the keys of the selected ones.
            let keys = (selection.top_k * selection.block_size).min(problem.seq_k);
            let blocks = problem.seq_k.div_ceil(selection.block_size);
            let attend = keys * (problem.d_head + problem.d_value);
            return 2.0 * (problem.queries() * (blocks * problem.d_head + attend)) as f64;
        }
        Formula::NativeSparse(branches) => {
            // The means of all blocks, the keys of the selected ones, and those of the window.
            let blocks = problem.seq_k.div_ceil(branches.block_size);
            let selected = (branches.top_k * branches.block_size).min(problem.seq_k);
            let keys = blocks + selected + branches.window.min(problem.seq_k);
            return 2.0 * (problem.queries() * keys * (problem.d_head + problem.d_value)) as f64;
        }
        // The landmarks, and the iterations on their scores, of which there are four products.
        &Formula::Nystrom {
            landmarks,
            iterations,
        } => {
            let [rows, columns] = [problem.seq_q, problem.seq_k].map(|seq| landmarks.min(seq));
            let pairs = rows * problem.seq_k + problem.seq_q * columns + rows * columns;
            let attend = pairs * (problem.d_head + problem.d_value);
            let iterate = 2 * iterations * rows * rows * (rows + columns);
            return 2.0 * (problem.batch * problem.heads * (attend + iterate)) as f64;
        }
        // The projections, and the pairs of queries and projected keys.
        Formula::Linformer(projections) => {
            let keys = problem.batch * problem.kv_heads * problem.seq_k;
            let width = problem.d_head + problem.d_value;
            let rows = keys + problem.queries();
            return 2.0 * (rows * projections.rank * width) as f64;
        }
        Formula::Linear(FeatureMap::Random { directions }) => directions.len() / problem.d_head,
        Formula::Linear(FeatureMap::Cosine(_)) => 2 * problem.d_head,
        Formula::Linear(FeatureMap::Taylor) => 1 + problem.d_head + problem.d_head.pow(2),
        Formula::Linear(_) | Formula::Retention(_) | Formula::Gated(_) => problem.d_head,
    };
    // A delta rule also reads the state for each key.
    let reads_keys = matches!(&problem.formula, Formula::Gated(gates) if gates.is_delta);
    // Keys update the state, queries read it; earlier keys are in the state when decoding.
    let new_keys = match pass {
        Pass::Forward | Pass::Train => problem.seq_k,
        Pass::Decode | Pass::Generate => 1,
    };
    let keys = problem.batch * problem.kv_heads * new_keys * (1 + usize::from(reads_keys));
    2.0 * ((problem.queries() + keys) * features * problem.d_value) as f64
}

#[cfg(test)]
mod tests {
    use zoo_spec::{Mechanism, MechanismConfig};

    use super::*;
    use crate::case::problem;
    use crate::model::{Model, Setup, Size};

    fn layer(name: &str, n: usize, pass: Pass) -> Case {
        let problem = problem(name, Some(n)).expect("in the catalogue, at any length");
        Case::attention(Mechanism::Standard, problem, pass)
    }

    /// 4·b·h·n·m·d forward, 3.5 times that for training.
    #[test]
    fn flops_match_the_formula() {
        let forward = 4.0 * 8.0 * 256.0 * 256.0 * 64.0;
        assert_eq!(layer("layer", 256, Pass::Forward).flops(), forward);
        assert_eq!(layer("layer", 256, Pass::Train).flops(), 3.5 * forward);
        assert_eq!(Case::matmul().flops(), 2.0 * 1024f64.powi(3));
        let causal = layer("layer-causal", 128, Pass::Forward);
        let density = 129.0 / 256.0;
        let full = layer("layer", 128, Pass::Forward);
        assert_eq!(causal.flops(), density * full.flops());
    }

    #[test]
    fn local_p_attends_to_a_window() {
        let flops = |mechanism: Mechanism, name: &str| {
            let problem = problem(name, Some(2048)).expect("in the catalogue, at any length");
            Case::attention(mechanism, problem, Pass::Forward).flops()
        };
        let MechanismConfig::LocalP(config) = Mechanism::LocalP.into() else {
            panic!("not the config of local-p")
        };
        let keys = 2 * config.window + 1;
        let full = 4.0 * 8.0 * 2048.0 * 64.0 * keys as f64;
        assert_eq!(flops(Mechanism::LocalP, "layer"), full);
        // The first queries see fewer keys.
        let pairs = keys * (keys + 1) / 2 + (2048 - keys) * keys;
        let causal = flops(Mechanism::LocalP, "layer-causal");
        let relative = causal / (4.0 * 8.0 * 64.0 * pairs as f64);
        assert!((relative - 1.0).abs() < 1e-12, "{relative}");
    }

    /// Inputs, outputs and gradients; for a model, its parameters and optimizer state.
    #[test]
    fn minimum_memory() {
        let tensor = 8 * 256 * 64 * 4;
        let attention = |pass| layer("layer", 256, pass);
        let gpt = Setup::new(Model::Gpt, Size::Tiny);
        let gpt = |pass| Case::model(gpt.clone(), Mechanism::Flash, pass);
        for (case, dtype, expected) in [
            (attention(Pass::Forward), Dtype::F32, 4 * tensor),
            (attention(Pass::Train), Dtype::F32, 8 * tensor),
            (attention(Pass::Forward), Dtype::Bf16, 2 * tensor),
            (gpt(Pass::Generate), Dtype::F32, 4000),
            (gpt(Pass::Train), Dtype::F32, 16_000),
        ] {
            let minimum = case.minimum_bytes(dtype, Some(1000));
            assert_eq!(minimum, expected, "{case:?}");
        }
    }
}
