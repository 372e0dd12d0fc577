//! Mechanisms against the oracle: `standard` and `flash` on every problem of the catalogue, the
//! others on those that they accept. The device is that of `ZOO_BACKEND` (default: flex). If it
//! cannot be opened, the run fails.

mod all_mechanisms;
mod authors;
mod decode;
mod determinism;
mod entropy;
mod explain;
mod extreme_scores;
mod flash;
mod flexible;
mod golden;
mod hard;
mod invalid_inputs;
mod invariants;
mod layers;
mod lsh;
mod masked_values;
mod matmul;
mod mla;
mod multi_head;
mod other_mechanisms;
mod parameters;
mod programs;
mod random;
mod recent;
mod resample;
mod rotary;

/// What most tests use.
mod prelude {
    pub(crate) use burn::tensor::{Bool, DType, Device, Tensor};
    pub(crate) use zoo_attention::{
        AttentionInput, AttentionOptions, Mechanism, MechanismConfig, MultiHeadAttention,
        MultiHeadAttentionConfig, Pattern, Positions, attend, standard,
    };
    pub(crate) use zoo_backend::OpenDevice;
    pub(crate) use zoo_conformance::*;
    pub(crate) use zoo_oracle::{
        Difference, Formula, Inputs, Mask, Precision, Problem, Requirement, SMALL_HEADS,
        SMALL_SEQUENCE, solve,
    };

    pub(crate) use crate::find_problem;
}

use std::process::ExitCode;
use std::sync::Mutex;

use libtest_mimic::{Arguments, Trial};
use zoo_backend::{Dtype, open_for_tests};
use zoo_oracle::{Mismatch, catalogue, find};

use crate::prelude::*;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let opened = match open_for_tests() {
        Ok(opened) => opened,
        Err(failure) => return failure,
    };
    let conclusion = libtest_mimic::run(&arguments, shard(trials(&opened)));
    for (name, errors) in [
        ("largest error", &MAX_ERRORS),
        ("largest error in half precision", &MAX_ERRORS_HALF),
    ] {
        if let Some(errors) = *must(errors.lock()) {
            println!(
                "{name}: {:.1e} forward, {:.1e} backward, {:.0}% of the tolerance",
                errors.context,
                errors.gradients,
                errors.tolerance_ratio * 100.0,
            );
        }
    }
    conclusion.exit_code()
}

static MAX_ERRORS: Mutex<Option<Errors>> = Mutex::new(None);
static MAX_ERRORS_HALF: Mutex<Option<Errors>> = Mutex::new(None);

fn trials(opened: &OpenDevice) -> Vec<Trial> {
    let device = &opened.device;
    let mut suite = Suite::new(device);
    for mechanism in [Mechanism::Standard, Mechanism::Flash] {
        let config = MechanismConfig::from(mechanism);
        for problem in catalogue() {
            let name = mechanism.name();
            add_problem(&mut suite, name, &config, &problem);
            add_problem_in_half(&mut suite, name, &config, &problem, opened);
        }
        if mechanism == Mechanism::Flash {
            for problem in flash::wide_heads() {
                add_problem_in_half(&mut suite, mechanism.name(), &config, &problem, opened);
            }
            for problem in flash::few_queries() {
                add_problem(&mut suite, mechanism.name(), &config, &problem);
                add_problem_in_half(&mut suite, mechanism.name(), &config, &problem, opened);
            }
        }
        invariants::trials(mechanism, &mut suite);
        invalid_inputs::trials(mechanism, &mut suite, device);
    }
    // Too large for a software adapter.
    for problem in layers_in_half().into_iter().filter(|_| !opened.software) {
        let flash = Mechanism::Flash;
        add_problem_in_half(&mut suite, flash.name(), &flash.into(), &problem, opened);
    }
    for mechanism in Mechanism::ALL {
        all_mechanisms::trials(mechanism, &mut suite);
        random::trials(mechanism, &mut suite, opened.software);
    }
    other_mechanisms::trials(&mut suite, opened);
    parameters::trials(&mut suite);
    programs::trials(&mut suite);
    decode::trials(&mut suite, opened);
    hard::trials(&mut suite);
    lsh::trials(&mut suite);
    multi_head::trials(&mut suite);
    golden::trials(&mut suite);
    recent::trials(&mut suite);
    authors::trials(&mut suite);
    layers::trials(&mut suite);
    mla::trials(&mut suite);
    rotary::trials(&mut suite);
    explain::trials(&mut suite, opened);
    extreme_scores::trials(&mut suite, opened);
    masked_values::trials(&mut suite, opened);
    entropy::trials(&mut suite, opened);
    suite.add_training_table("matmul/", matmul::TESTS);
    suite.add_training_table("resample/", resample::TESTS);
    determinism::trials(&mut suite, opened);
    flash::trials(&mut suite);
    flexible::trials(&mut suite);
    for problem in catalogue() {
        let name = format!("standard/{}/weights", problem.name);
        suite.add(name, move |device| check_weights(&problem, device));
    }
    suite.trials
}

/// Layers of a realistic size for kernels in half precision: many tiles of queries and of keys, shared
/// heads, and widths that are no multiple of those of matrix instructions.
fn layers_in_half() -> [Problem; 3] {
    [
        Problem::new("half-layer-causal", [1, 4, 1100, 1100, 64])
            .with_kv_heads(2)
            .with_mask(Mask::Causal),
        Problem::new("half-layer-more-keys", [1, 2, 300, 2100, 80]).with_d_value(72),
        Problem::new("half-layer-window", [2, 1, 1000, 1000, 128]).with_mask(Mask::Window {
            left: 200,
            right: 30,
        }),
    ]
}

fn find_problem(name: &str) -> Problem {
    find(name).unwrap_or_else(|| panic!("no problem {name}"))
}

/// Adds trials of a mechanism on a problem without and with gradients.
fn add_problem(suite: &mut Suite, name: &str, mechanism: &MechanismConfig, problem: &Problem) {
    type Check = fn(&MechanismConfig, &Problem, &Device) -> Result<Errors, Mismatch>;
    let checks: [(&str, Check); 2] = [("forward", check_forward), ("gradients", check_gradients)];
    for (pass, check) in checks {
        let (mechanism, problem) = (*mechanism, problem.clone());
        suite.add(format!("{name}/{}/{pass}", problem.name), move |device| {
            record_errors(&MAX_ERRORS, check(&mechanism, &problem, device));
        });
    }
}

/// Adds trials of a mechanism on a problem with gradients in half precision.
fn add_problem_in_half(
    suite: &mut Suite,
    name: &str,
    mechanism: &MechanismConfig,
    problem: &Problem,
    opened: &OpenDevice,
) {
    for (dtype_name, dtype) in half_types(opened) {
        let (mechanism, problem) = (*mechanism, problem.clone());
        let trial = format!("{name}/{}/{dtype_name}", problem.name);
        suite.add_training(trial, move |device| {
            let tensors = Tensors::from_problem(&problem, device).cast(dtype);
            let errors = compare_gradients(&mechanism, &problem, tensors, &all_queries(&problem));
            record_errors(&MAX_ERRORS_HALF, errors);
        });
    }
}

/// The half-precision types that the device supports.
fn half_types(opened: &OpenDevice) -> impl Iterator<Item = (Dtype, DType)> {
    [(Dtype::F16, DType::F16), (Dtype::Bf16, DType::BF16)]
        .into_iter()
        .filter(|(name, _)| opened.dtypes.contains(name))
}

fn record_errors(max: &Mutex<Option<Errors>>, errors: Result<Errors, Mismatch>) {
    let errors = must(errors);
    let mut max = must(max.lock());
    *max = Some(max.map_or(errors, |max| max.max(errors)));
}

fn check_weights(problem: &Problem, device: &Device) {
    let inputs = problem.inputs();
    let weights = Tensors::new(problem, &inputs, device)
        .apply(standard)
        .into_weights();
    let solution = solve(problem, &inputs);
    let tolerance = Precision::F32.forward(solution.largest_score);
    must(tolerance.check("weights", &to_vec(weights), &solution.weights));
}
