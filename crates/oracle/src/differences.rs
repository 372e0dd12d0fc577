//! Tests of the oracle's gradients by central differences: slow, and independent of a derivation
//! by hand.

use zoo_spec::{Linear, LinearFeatures, LocalP, Lsh, Mechanism, MechanismConfig, Performer};

use crate::{Features, Formula, Inputs, Mask, Parameter, Problem, catalogue, solve};

/// `Σ upstream · context`
fn loss(problem: &Problem, inputs: &Inputs) -> f64 {
    let context = solve(problem, inputs).context;
    let pairs = context.iter().zip(&inputs.upstream);
    pairs.map(|(o, u)| o * f64::from(*u)).sum()
}

/// `[d_query, d_key, d_value, d_bias]` of a function of the inputs.
pub(crate) fn differences(inputs: &Inputs, loss: impl Fn(&Inputs) -> f64) -> [Vec<f64>; 4] {
    type Part = fn(&mut Inputs) -> &mut Vec<f32>;
    let parts: [Part; 4] = [
        |inputs| &mut inputs.query,
        |inputs| &mut inputs.key,
        |inputs| &mut inputs.value,
        |inputs| &mut inputs.bias,
    ];
    parts.map(|part| {
        let numbers = part(&mut inputs.clone()).clone();
        slopes(&numbers, |numbers| {
            let mut moved = inputs.clone();
            *part(&mut moved) = numbers.to_vec();
            loss(&moved)
        })
    })
}

/// The derivative of a function by each of these numbers.
fn slopes(numbers: &[f32], function: impl Fn(&[f32]) -> f64) -> Vec<f64> {
    // The cube root of f64's precision balances truncation against cancellation;
    // inputs are f32, so the step must also be far above their rounding, and the
    // step really taken is read back after it.
    const STEP: f32 = 1e-3;
    let mut moved = numbers.to_vec();
    (0..numbers.len())
        .map(|at| {
            let [above, below] = [numbers[at] + STEP, numbers[at] - STEP];
            let [up, down] = [above, below].map(|number| {
                moved[at] = number;
                function(&moved)
            });
            moved[at] = numbers[at];
            (up - down) / (f64::from(above) - f64::from(below))
        })
        .collect()
}

/// Differences carry about 1e-6 of the gradient's size; a wrong term shows as 1e-2 and more.
pub(crate) const CLOSE: f64 = 1e-4;

/// Checks gradients by hand against those by differences. 1e-9 is for a gradient of zero.
pub(crate) fn assert_near(
    relative: f64,
    problem: &str,
    name: &str,
    by_hand: &[f64],
    by_difference: &[f64],
) {
    assert_eq!(by_hand.len(), by_difference.len(), "{problem} {name}");
    let size = by_hand.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    for (at, (a, b)) in by_hand.iter().zip(by_difference).enumerate() {
        assert!(
            (a - b).abs() <= relative * size + 1e-9,
            "{problem} {name}[{at}]: {a} by hand, {b} by differences"
        );
    }
}

/// The gradients of every formula by its inputs.
#[test]
fn gradients_by_inputs_match() {
    let tiny: Vec<_> = catalogue().into_iter().filter(Problem::is_tiny).collect();
    assert!(tiny.len() >= 10, "only {} tiny problems", tiny.len());
    for problem in &tiny {
        assert_gradients(problem);
    }
    let mut checked = 0;
    for mechanism in [
        Mechanism::Multiplicative.into(),
        Mechanism::Additive.into(),
        Lsh::new(2, 2, 0).into(),
        LocalP { window: 2 }.into(),
        Mechanism::Linear.into(),
        Linear {
            features: LinearFeatures::Relu,
        }
        .into(),
        Performer {
            features: 7,
            ..Performer::default()
        }
        .into(),
        MechanismConfig::from(Mechanism::Retention),
    ] {
        // Powers of squares: those of large numbers are beyond every step.
        for problem in tiny.iter().filter(|problem| problem.spread <= 1.0) {
            if let Some(given) = problem.given_to(&mechanism, drawn) {
                assert_gradients(&given);
                checked += 1;
            }
        }
    }
    assert!(checked >= 20, "only {checked} problems were taken");
}

fn drawn(parameter: Parameter) -> Vec<f32> {
    let sizes = [1, 1, parameter.count(), 1, 1];
    let drawn = Problem::new("parameters", sizes).inputs().query;
    match parameter {
        // A step must not change who sees whom: nobody is nearer to any of these,
        // so that the hashes may be anything.
        Parameter::HashDirections { .. } => vec![0.0; parameter.count()],
        Parameter::Hashes { .. } => {
            let sign = |x: &f32| if *x > 0.0 { 1.0 } else { 0.0 };
            drawn.iter().map(sign).collect()
        }
        _ => drawn,
    }
}

fn assert_gradients(problem: &Problem) {
    let relative = match problem.formula {
        // A total of a few features that are mostly cut off may be near its floor, and
        // what is divided by it bends within a step: seen as 4e-3.
        Formula::Features(Features::Relu) => 1e-2,
        // A step moves a position by some hundredths, and what falls with the square of
        // the distance bends within it: seen as 2e-4.
        Formula::Predicted { .. } => 1e-3,
        _ => CLOSE,
    };
    let inputs = problem.inputs();
    let mut answer = solve(problem, &inputs);
    let as_keys = answer.d_query_as_key.iter();
    (answer.d_query.iter_mut().zip(as_keys)).for_each(|(d, more)| *d += more);
    let [d_query, d_key, d_value, d_bias] = differences(&inputs, |inputs| loss(problem, inputs));
    for (name, numbers, by_hand, mut by_difference) in [
        ("d_query", &inputs.query, &answer.d_query, d_query),
        ("d_key", &inputs.key, &answer.d_key, d_key),
        ("d_value", &inputs.value, &answer.d_value, d_value),
        ("d_bias", &inputs.bias, &answer.d_bias, d_bias),
    ] {
        if let Formula::Features(_) = problem.formula {
            // A step across zero, where some features have a corner, tells nothing.
            let crossing = (0..numbers.len()).filter(|&at| numbers[at].abs() < 2e-3);
            crossing.for_each(|at| by_difference[at] = by_hand[at]);
        }
        assert_near(relative, problem.name, name, by_hand, &by_difference);
    }
}

/// The gradients of every formula that has parameters by these.
#[test]
fn gradients_by_parameters_match() {
    let drawn = |rows: usize| Problem::new("learned", [1, 1, rows, 1, 3]).inputs().query;
    let (vectors, matrices) = (drawn(2), drawn(6));
    let problem = Problem::new("parameters", [2, 2, 5, 8, 3])
        .with_mask(Mask::KeyLengths(vec![8, 5]))
        .with_kv_heads(1);
    let inputs = problem.inputs();
    type Build = fn(&[f32], &[f32]) -> Formula;
    let formulas: [Build; 3] = [
        |vectors, _| Formula::Additive(vectors.to_vec()),
        |_, matrices| Formula::Multiplicative(matrices.to_vec()),
        |vectors, matrices| Formula::Predicted {
            vectors: vectors.to_vec(),
            matrices: matrices.to_vec(),
            window: 3,
        },
    ];
    for formula in formulas {
        let with = |vectors: &[f32], matrices: &[f32]| {
            problem.clone().with_formula(formula(vectors, matrices))
        };
        let answer = solve(&with(&vectors, &matrices), &inputs);
        let d_vector = slopes(&vectors, |moved| loss(&with(moved, &matrices), &inputs));
        let d_matrix = slopes(&matrices, |moved| loss(&with(&vectors, moved), &inputs));
        for (name, by_hand, by_difference) in [
            ("d_vector", &answer.d_vector, &d_vector),
            ("d_matrix", &answer.d_matrix, &d_matrix),
        ] {
            // Not every formula has both.
            if !by_hand.is_empty() {
                assert!(by_hand.iter().any(|x| *x != 0.0), "{name} is nothing");
                assert_near(CLOSE, "parameters", name, by_hand, by_difference);
            }
        }
    }
}
