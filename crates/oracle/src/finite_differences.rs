//! Tests of the oracle's gradients by central differences, which do not depend on the analytic
//! derivation.

use zoo_spec::{Linear, LinearFeatures, LocalP, Lsh, Mechanism, MechanismConfig, Performer};

use crate::{
    FeatureMap, Formula, GatedBranches, GatedRecurrence, Inputs, Mask, Parameter, Problem,
    Projections, RelativeTable, catalogue, solve,
};

/// `Σ output_grad · context`
fn loss(problem: &Problem, inputs: &Inputs) -> f64 {
    let context = solve(problem, inputs).context;
    let pairs = context.iter().zip(&inputs.output_grad);
    pairs.map(|(o, d)| o * f64::from(*d)).sum()
}

/// Numerical gradients `[d_query, d_key, d_value, d_bias]` of a loss.
pub(crate) fn input_gradients(inputs: &Inputs, loss: impl Fn(&Inputs) -> f64) -> [Vec<f64>; 4] {
    type Part = fn(&mut Inputs) -> &mut Vec<f32>;
    let parts: [Part; 4] = [
        |inputs| &mut inputs.query,
        |inputs| &mut inputs.key,
        |inputs| &mut inputs.value,
        |inputs| &mut inputs.bias,
    ];
    parts.map(|part| {
        let values = part(&mut inputs.clone()).clone();
        gradient(&values, |values| {
            let mut perturbed = inputs.clone();
            *part(&mut perturbed) = values.to_vec();
            loss(&perturbed)
        })
    })
}

fn gradient(values: &[f32], function: impl Fn(&[f32]) -> f64) -> Vec<f64> {
    // The cube root of f64's precision balances truncation against cancellation. Inputs are f32, so
    // the step must also be far above their rounding, and the actual step is computed after it.
    const STEP: f32 = 1e-3;
    let mut perturbed = values.to_vec();
    (0..values.len())
        .map(|i| {
            let [above, below] = [values[i] + STEP, values[i] - STEP];
            let [up, down] = [above, below].map(|value| {
                perturbed[i] = value;
                function(&perturbed)
            });
            perturbed[i] = values[i];
            (up - down) / (f64::from(above) - f64::from(below))
        })
        .collect()
}

/// Numerical gradients have a relative error of about 1e-6; a wrong term shows as 1e-2 and more.
pub(crate) const RELATIVE: f64 = 1e-4;

/// Compares analytic with numerical gradients. 1e-9 is for a gradient of zero.
pub(crate) fn assert_gradient_close(
    relative: f64,
    problem: &str,
    name: &str,
    analytic: &[f64],
    numerical: &[f64],
) {
    assert_eq!(analytic.len(), numerical.len(), "{problem} {name}");
    let scale = analytic.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    for (i, (a, b)) in analytic.iter().zip(numerical).enumerate() {
        assert!(
            (a - b).abs() <= relative * scale + 1e-9,
            "{problem} {name}[{i}]: {a} analytic, {b} numerical"
        );
    }
}

#[test]
fn input_gradients_match() {
    let tiny: Vec<_> = catalogue().into_iter().filter(Problem::is_tiny).collect();
    assert!(tiny.len() >= 10, "only {} tiny problems", tiny.len());
    for problem in &tiny {
        assert_input_gradients(problem);
    }
    let features = LinearFeatures::Relu;
    let relu = Linear {
        feature_map: features,
    };
    let performer = Performer {
        n_features: 7,
        ..Performer::default()
    };
    let mut checked = 0;
    for mechanism in [
        Mechanism::Multiplicative.into(),
        Mechanism::Additive.into(),
        Lsh::new(2, 2, 0).into(),
        Mechanism::Moba.small_for_tests(),
        Mechanism::NativeSparse.small_for_tests(),
        LocalP { window: 2 }.into(),
        Mechanism::Sink.small_for_tests(),
        Mechanism::Sigmoid.into(),
        Mechanism::Differential.into(),
        Mechanism::Relative.small_for_tests(),
        Mechanism::Forgetting.into(),
        Mechanism::Linear.into(),
        relu.into(),
        performer.into(),
        Mechanism::Cosformer.into(),
        Mechanism::Based.into(),
        Mechanism::Nystrom.small_for_tests(),
        Mechanism::Nystrom.into(),
        Mechanism::Linformer.small_for_tests(),
        MechanismConfig::from(Mechanism::Retention),
        Mechanism::Lightning.into(),
        Mechanism::Mamba2.into(),
        Mechanism::Gla.into(),
        Mechanism::Delta.into(),
        Mechanism::GatedDelta.into(),
        Mechanism::Kda.into(),
    ] {
        // Exponentials of squares: with large inputs, no step is small enough.
        for problem in tiny.iter().filter(|problem| problem.std <= 1.0) {
            if let Some(problem) = problem.with_mechanism(&mechanism, random_parameter) {
                assert_input_gradients(&problem);
                checked += 1;
            }
        }
    }
    assert!(checked >= 20, "only {checked} problems were accepted");
}

fn random_parameter(parameter: Parameter) -> Vec<f32> {
    let sizes = [1, 1, parameter.num_elements(), 1, 1];
    let values = Problem::new("parameters", sizes).inputs().query;
    match parameter {
        // A step must not change the visible keys: all directions are equally near, so that any
        // hash is valid.
        Parameter::HashDirections { .. } => vec![0.0; parameter.num_elements()],
        Parameter::Hashes { .. } => {
            let sign = |x: &f32| if *x > 0.0 { 1.0 } else { 0.0 };
            values.iter().map(sign).collect()
        }
        Parameter::LogDecays { .. } => values.iter().map(|x| -x.abs()).collect(),
        Parameter::Strengths { .. } | Parameter::BranchGates { .. } => {
            values.iter().map(|x| x.abs().min(1.0)).collect()
        }
        _ => values,
    }
}

fn assert_input_gradients(problem: &Problem) {
    let relative = match problem.formula {
        // The normaliser of a few features that are mostly clipped may be near its floor, where the
        // quotient is nonlinear within a step: errors up to 4e-3 were measured.
        Formula::Linear(FeatureMap::Relu) => 1e-2,
        // A step moves a predicted position by some hundredths, and the Gaussian is nonlinear
        // within it: errors up to 2e-4 were measured.
        Formula::LocalPredictive { .. } => 1e-3,
        _ => RELATIVE,
    };
    let inputs = problem.inputs();
    let mut solution = solve(problem, &inputs);
    let as_keys = solution.d_query_as_key.iter();
    (solution.d_query.iter_mut().zip(as_keys)).for_each(|(d, more)| *d += more);
    let [d_query, d_key, d_value, d_bias] =
        input_gradients(&inputs, |inputs| loss(problem, inputs));
    for (name, values, analytic, mut numerical) in [
        ("d_query", &inputs.query, &solution.d_query, d_query),
        ("d_key", &inputs.key, &solution.d_key, d_key),
        ("d_value", &inputs.value, &solution.d_value, d_value),
        ("d_bias", &inputs.bias, &solution.d_bias, d_bias),
    ] {
        if let Formula::Linear(_) = problem.formula {
            // Some feature maps are not differentiable at zero: skip steps across it.
            let crossing = (0..values.len()).filter(|&i| values[i].abs() < 2e-3);
            crossing.for_each(|i| numerical[i] = analytic[i]);
        }
        assert_gradient_close(relative, problem.name, name, analytic, &numerical);
    }
}

#[test]
fn parameter_gradients_match() {
    let random = |rows: usize| Problem::new("learned", [1, 1, rows, 1, 3]).inputs().query;
    let (vectors, matrices) = (random(2), random(6));
    let problem = Problem::new("parameters", [2, 2, 5, 8, 3])
        .with_mask(Mask::KeyLengths(vec![8, 5]))
        .with_kv_heads(1);
    let inputs = problem.inputs();
    type Build = fn(&[f32], &[f32]) -> Formula;
    let formulas: [Build; 3] = [
        |vectors, _| Formula::Additive(vectors.to_vec()),
        |_, matrices| Formula::Multiplicative(matrices.to_vec()),
        |vectors, matrices| Formula::LocalPredictive {
            vectors: vectors.to_vec(),
            matrices: matrices.to_vec(),
            window: 3,
        },
    ];
    for formula in formulas {
        let with = |vectors: &[f32], matrices: &[f32]| {
            problem.clone().with_formula(formula(vectors, matrices))
        };
        let solution = solve(&with(&vectors, &matrices), &inputs);
        let d_vector = gradient(&vectors, |vectors| loss(&with(vectors, &matrices), &inputs));
        let d_matrix = gradient(&matrices, |matrices| {
            loss(&with(&vectors, matrices), &inputs)
        });
        for (name, analytic, numerical) in [
            ("d_vector", &solution.d_vector, &d_vector),
            ("d_matrix", &solution.d_matrix, &d_matrix),
        ] {
            // Not every formula has both.
            if !analytic.is_empty() {
                assert!(analytic.iter().any(|x| *x != 0.0), "{name} is zero");
                assert_gradient_close(RELATIVE, "parameters", name, analytic, numerical);
            }
        }
    }
}

#[test]
fn other_parameter_gradients_match() {
    let random = |count: usize| Problem::new("learned", [1, 1, count, 1, 1]).inputs().query;
    let problem = Problem::new("parameters", [2, 2, 5, 8, 4])
        .with_mask(Mask::All(vec![Mask::Causal, Mask::KeyLengths(vec![8, 5])]))
        .with_kv_heads(1);
    let inputs = problem.inputs();
    type Build = fn(&[f32]) -> Formula;
    let formulas: [(usize, Build); 9] = [
        (2, |values| Formula::Sink(values.to_vec())),
        (2 * 2 * 8, |values| Formula::Forgetting(values.to_vec())),
        (4 * 2, |values| Formula::Differential {
            vectors: values.to_vec(),
            lambda_init: 0.5,
        }),
        // Decays of one KV head, then strengths.
        (16, |values| recurrence(values, 16, false)),
        (32, |values| recurrence(values, 16, true)),
        (16 * 5, |values| recurrence(values, 64, true)),
        (2 * 3 * 9, |values| {
            Formula::Linformer(Projections {
                rank: 3,
                length: 9,
                values: values.to_vec(),
            })
        }),
        (2 * 2 * 8 * 3, |values| {
            Formula::NativeSparse(GatedBranches {
                block_size: 2,
                top_k: 2,
                window: 1,
                gates: values.to_vec(),
            })
        }),
        (2 * 6, |values| {
            Formula::Relative(RelativeTable {
                values: values.to_vec(),
                num_buckets: 6,
                max_distance: 5,
                bidirectional: false,
            })
        }),
    ];
    for (count, formula) in formulas {
        let values = random(count);
        let with = |values: &[f32]| problem.clone().with_formula(formula(values));
        let analytic = solve(&with(&values), &inputs).d_parameter;
        let numerical = gradient(&values, |values| loss(&with(values), &inputs));
        let name = format!("{:?}", with(&[]).formula);
        assert!(analytic.iter().any(|x| *x != 0.0), "{name} is zero");
        assert_gradient_close(RELATIVE, "parameters", &name, &analytic, &numerical);
    }
}

fn recurrence(values: &[f32], decays: usize, is_delta: bool) -> Formula {
    let (log_decays, strengths) = values.split_at(decays.min(values.len()));
    Formula::Gated(GatedRecurrence {
        log_decays: log_decays.to_vec(),
        strengths: strengths.to_vec(),
        is_delta,
    })
}
