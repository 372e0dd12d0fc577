//! Both ways of softmax attention on every problem of the catalogue, the other mechanisms
//! on those that are theirs, on the device that `ZOO_BACKEND` names (default: flex). A device that
//! cannot be opened fails the run. Tests fail by a panic.

mod conditions;
mod decode;
mod drawn;
mod entropy;
mod every;
mod explain;
mod extremes;
mod golden;
mod hard;
mod hidden;
mod learned;
mod lsh;
mod misuses;
mod multi_head;
mod others;
mod promises;
mod redraw;
mod repeated;
mod tiled;

use std::process::ExitCode;
use std::sync::Mutex;

use burn::tensor::{DType, Device};
use libtest_mimic::{Arguments, Trial};
use zoo_attention::{Mechanism, MechanismConfig, standard};
use zoo_backend::{Dtype, Opened, open_for_tests};
use zoo_conformance::*;
use zoo_oracle::{Mismatch, Precision, Problem, catalogue, find, solve};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let opened = match open_for_tests() {
        Ok(opened) => opened,
        Err(failure) => return failure,
    };
    let conclusion = libtest_mimic::run(&arguments, share(trials(&opened)));
    for (name, worst) in [
        ("worst error", &WORST),
        ("in half precision", &WORST_IN_HALF),
    ] {
        let worst = must(worst.lock());
        if worst.share > 0.0 {
            println!(
                "{name}: {:.1e} forward, {:.1e} backward, {:.0}% of what is allowed",
                worst.context,
                worst.gradients,
                worst.share * 100.0,
            );
        }
    }
    conclusion.exit_code()
}

const NO_ERRORS: Errors = Errors {
    context: 0.0,
    gradients: 0.0,
    share: 0.0,
};
static WORST: Mutex<Errors> = Mutex::new(NO_ERRORS);
/// Apart, since these errors are of another size.
static WORST_IN_HALF: Mutex<Errors> = Mutex::new(NO_ERRORS);

fn trials(opened: &Opened) -> Vec<Trial> {
    let device = &opened.device;
    let mut suite = Suite::new(device);
    for mechanism in [Mechanism::Standard, Mechanism::Flash] {
        let config = MechanismConfig::from(mechanism);
        for problem in catalogue() {
            judged_by_both(&mut suite, &mechanism.to_string(), &config, &problem);
            judged_in_half(
                &mut suite,
                &mechanism.to_string(),
                &config,
                &problem,
                opened,
            );
        }
        promises::trials(mechanism, &mut suite);
        misuses::trials(mechanism, &mut suite, device);
    }
    for mechanism in Mechanism::ALL {
        every::trials(mechanism, &mut suite);
        drawn::trials(mechanism, &mut suite, opened.software);
    }
    others::trials(&mut suite, opened);
    learned::trials(&mut suite);
    suite.add_table("conditions/", conditions::TESTS);
    decode::trials(&mut suite, opened);
    hard::trials(&mut suite);
    lsh::trials(&mut suite);
    multi_head::trials(&mut suite);
    golden::trials(&mut suite);
    explain::trials(&mut suite, opened);
    extremes::trials(&mut suite);
    hidden::trials(&mut suite);
    entropy::trials(&mut suite, opened);
    suite.add_table("redraw/", redraw::TESTS);
    repeated::trials(&mut suite, opened);
    suite.add_table("flash/", tiled::TESTS);
    for problem in catalogue() {
        let name = format!("standard/{}/weights", problem.name);
        suite.add(name, move |device| {
            weights_match_the_oracle(&problem, device)
        });
    }
    suite.trials
}

fn named(name: &str) -> Problem {
    find(name).unwrap_or_else(|| panic!("no problem {name}"))
}

/// A problem through a mechanism, without gradients and with them.
fn judged_by_both(suite: &mut Suite, name: &str, mechanism: &MechanismConfig, problem: &Problem) {
    type Check = fn(&MechanismConfig, &Problem, &Device) -> Result<Errors, Mismatch>;
    let checks: [(&str, Check); 2] = [("forward", check_forward), ("gradients", check_gradients)];
    for (pass, check) in checks {
        let (mechanism, problem) = (*mechanism, problem.clone());
        suite.add(format!("{name}/{}/{pass}", problem.name), move |device| {
            counted(&WORST, check(&mechanism, &problem, device));
        });
    }
}

/// A problem through a mechanism with gradients, in every half type of the device.
fn judged_in_half(
    suite: &mut Suite,
    name: &str,
    mechanism: &MechanismConfig,
    problem: &Problem,
    opened: &Opened,
) {
    for (word, dtype) in half_types(opened) {
        let (mechanism, problem) = (*mechanism, problem.clone());
        suite.add_training(format!("{name}/{}/{word}", problem.name), move |device| {
            let tensors = Tensors::of(&problem, device).cast(dtype);
            let judged = judge_gradients(&mechanism, &problem, tensors, &all_queries(&problem));
            counted(&WORST_IN_HALF, judged);
        });
    }
}

/// The half-precision types the device computes in.
fn half_types(opened: &Opened) -> impl Iterator<Item = (Dtype, DType)> {
    [(Dtype::F16, DType::F16), (Dtype::Bf16, DType::BF16)]
        .into_iter()
        .filter(|(word, _)| opened.dtypes.contains(word))
}

fn counted(worst: &Mutex<Errors>, judged: Result<Errors, Mismatch>) {
    let errors = must(judged);
    let mut worst = must(worst.lock());
    *worst = worst.max(errors);
}

fn weights_match_the_oracle(problem: &Problem, device: &Device) {
    let inputs = problem.inputs();
    let weights = Tensors::new(problem, &inputs, device)
        .apply(standard)
        .weights;
    let answer = solve(problem, &inputs);
    let tolerance = Precision::F32.forward(answer.largest_score);
    must(tolerance.check("weights", &numbers(weights), &answer.weights));
}
