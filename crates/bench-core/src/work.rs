//! What a case comes to: floating-point operations, and the bytes it cannot do without.
//!
//! Of a model, `zoo-bench` counts both when it has made it.

use zoo_oracle::{Features, Formula, Parameter, Problem};
use zoo_spec::Dtype;

use crate::case::{Case, Pass, Task};

impl Case {
    /// Floating-point operations of its matmuls, over the pairs that see each other; none of a
    /// model, which counts them itself.
    pub fn work(&self) -> f64 {
        match &self.task {
            Task::Matmul { side } => 2.0 * (*side as f64).powi(3),
            Task::Attention { mechanism, problem } => {
                // How many parameters there are counts here, not which.
                let parameters = |parameter: Parameter| vec![0.0; parameter.count()];
                let given = problem.given_to(&(*mechanism).into(), parameters);
                let forward = given.map_or(0.0, |given| forward_work(&given, self.pass));
                match self.pass {
                    Pass::Forward | Pass::Decode | Pass::Generate => forward,
                    // The backward pass does five matmuls where the forward pass does two.
                    Pass::Train => 3.5 * forward,
                }
            }
            Task::Model { .. } => 0.0,
        }
    }

    /// Bytes no way of computing it can do without: inputs, result and gradients; of a model
    /// with so many parameters, these, and in training their gradients and moments.
    pub fn minimum_bytes(&self, dtype: Dtype, parameters: Option<u64>) -> u64 {
        let numbers = |shape: [usize; 4]| shape.iter().product::<usize>() as u64;
        let count = match (&self.task, self.pass) {
            (Task::Matmul { side }, _) => 3 * (side * side) as u64,
            (Task::Attention { problem, .. }, pass) => {
                let inputs = numbers(problem.query_shape())
                    + numbers(problem.key_shape())
                    + numbers(problem.value_shape());
                let context = numbers(problem.context_shape());
                match pass {
                    Pass::Forward | Pass::Decode | Pass::Generate => inputs + context,
                    // The upstream gradient is an input too.
                    Pass::Train => 2 * inputs + 2 * context,
                }
            }
            // Adam keeps two numbers for each.
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

/// Floating-point operations of the matmuls of a forward pass.
fn forward_work(problem: &Problem, pass: Pass) -> f64 {
    let features = match &problem.formula {
        Formula::Softmax
        | Formula::Multiplicative(_)
        | Formula::Additive(_)
        | Formula::Predicted { .. }
        | Formula::Best
        | Formula::Sampled { .. } => {
            let pairs = (problem.queries() * problem.seq_k) as f64;
            let width = (problem.d_head + problem.d_value) as f64;
            return 2.0 * pairs * problem.density() * width;
        }
        Formula::Hashed(hashing) => {
            // Queries with directions and their opposites, then with the keys of two chunks.
            let (seen, width) = (2 * hashing.bucket * hashing.rounds, problem.d_head);
            let hash = 2 * hashing.directions.len();
            let attend = seen.min(problem.seq_k) * (width + problem.d_value);
            return 2.0 * (problem.queries() * (hash + attend)) as f64;
        }
        Formula::Features(Features::Random { directions }) => directions.len() / problem.d_head,
        Formula::Features(_) | Formula::Retention(_) => problem.d_head,
    };
    // Keys into the state, queries out of it; those before a place that is decoded are in.
    let new = match pass {
        Pass::Forward | Pass::Train => problem.seq_k,
        Pass::Decode | Pass::Generate => 1,
    };
    let keys = problem.batch * problem.kv_heads * new;
    2.0 * ((problem.queries() + keys) * features * problem.d_value) as f64
}

#[cfg(test)]
mod tests {
    use zoo_oracle::find;
    use zoo_spec::Mechanism;

    use super::*;
    use crate::model::{Model, Setup, Size};

    fn layer(problem: &str, n: usize, pass: Pass) -> Case {
        let problem = find(problem).and_then(|problem| problem.at_length(n));
        Case::attention(
            Mechanism::Standard,
            problem.expect("in the catalogue, at any length"),
            pass,
        )
    }

    /// 4·b·h·n·m·d forward, 3.5 times that for training.
    #[test]
    fn work_is_counted_by_the_formula() {
        let forward = 4.0 * 8.0 * 256.0 * 256.0 * 64.0;
        assert_eq!(layer("layer", 256, Pass::Forward).work(), forward);
        assert_eq!(layer("layer", 256, Pass::Train).work(), 3.5 * forward);
        assert_eq!(Case::matmul().work(), 2.0 * 1024f64.powi(3));
        let causal = layer("layer-causal", 128, Pass::Forward);
        let share = 129.0 / 256.0;
        let whole = layer("layer", 128, Pass::Forward);
        assert_eq!(causal.work(), share * whole.work());
    }

    #[test]
    fn the_least_memory_is_inputs_results_and_gradients() {
        let tensor = 8 * 256 * 64 * 4;
        let least = |pass, dtype| layer("layer", 256, pass).minimum_bytes(dtype, None);
        assert_eq!(least(Pass::Forward, Dtype::F32), 4 * tensor);
        assert_eq!(least(Pass::Train, Dtype::F32), 8 * tensor);
        assert_eq!(least(Pass::Forward, Dtype::Bf16), 2 * tensor);
    }

    #[test]
    fn a_model_cannot_do_without_its_parameters() {
        let gpt = |pass| {
            let setup = Setup::new(Model::Gpt, Size::Tiny);
            Case::model(setup, Mechanism::Flash, pass).minimum_bytes(Dtype::F32, Some(1000))
        };
        assert_eq!(gpt(Pass::Generate), 4000);
        assert_eq!(gpt(Pass::Train), 16_000);
    }
}
