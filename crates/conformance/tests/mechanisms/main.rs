//! Both ways of softmax attention on every problem of the catalogue, the other mechanisms
//! on those that are theirs, on the device that `ZOO_BACKEND` names (default: flex). A device that cannot be opened fails the run.

mod additive;
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
mod local;
mod lsh;
mod misuses;
mod multi_head;
mod numbers_that_are_none;
mod others;
mod promises;
mod redraw;
mod repeated;
mod tiled;
mod work;

use std::process::ExitCode;
use std::sync::Mutex;

use burn::tensor::{DType, Device};
use libtest_mimic::{Arguments, Failed, Trial};
use zoo_attention::{Mechanism, MechanismConfig, standard};
use zoo_backend::{Dtype, Opened, open_for_tests};
use zoo_conformance::{
    Errors, Tensors, all_queries, check_forward, check_gradients, judge_gradients, numbers, share,
};
use zoo_oracle::{Mismatch, Precision, Problem, catalogue, solve};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let opened = match open_for_tests() {
        Ok(opened) => opened,
        Err(failure) => return failure,
    };
    let conclusion = libtest_mimic::run(&arguments, share(trials(&opened)));
    let worst = WORST.lock().expect("no trial panicked while holding it");
    println!(
        "worst error: {:.1e} forward, {:.1e} backward, {:.0}% of what is allowed",
        worst.context,
        worst.gradients,
        worst.share * 100.0,
    );
    let worst = WORST_IN_HALF
        .lock()
        .expect("no trial panicked while holding it");
    if worst.share > 0.0 {
        println!(
            "in half precision: {:.1e} forward, {:.1e} backward, {:.0}% of what is allowed",
            worst.context,
            worst.gradients,
            worst.share * 100.0,
        );
    }
    conclusion.exit_code()
}

static WORST: Mutex<Errors> = Mutex::new(Errors {
    context: 0.0,
    gradients: 0.0,
    share: 0.0,
});

/// Apart, since these errors are of another size.
static WORST_IN_HALF: Mutex<Errors> = Mutex::new(Errors {
    context: 0.0,
    gradients: 0.0,
    share: 0.0,
});

fn trials(opened: &Opened) -> Vec<Trial> {
    let device = &opened.device;
    let mut trials = Vec::new();
    for mechanism in [Mechanism::Standard, Mechanism::Flash] {
        let config = MechanismConfig::from(mechanism);
        for problem in catalogue() {
            let name = format!("{mechanism}/{}", problem.name);
            trials.push(judged(format!("{name}/forward"), {
                let (config, problem, device) = (config, problem.clone(), device.clone());
                move || check_forward(&config, &problem, &device)
            }));
            trials.push(judged(format!("{name}/gradients"), {
                let (config, problem, device) = (config, problem.clone(), device.clone());
                move || check_gradients(&config, &problem, &device)
            }));
            for (word, dtype) in half_types(opened) {
                trials.push(judged(format!("{name}/{word}"), {
                    let device = device.clone().autodiff();
                    let (config, problem) = (config, problem.clone());
                    move || {
                        let tensors = Tensors::new(&problem, &problem.inputs(), &device);
                        let queries = all_queries(&problem);
                        judge_gradients(&config, &problem, tensors.cast(dtype), &queries)
                    }
                }));
            }
        }
        trials.extend(promises::trials(mechanism, device));
        trials.extend(misuses::trials(mechanism, device));
        trials.extend(numbers_that_are_none::trials(mechanism, device));
    }
    for mechanism in Mechanism::ALL {
        trials.extend(every::trials(mechanism, device));
        trials.push(drawn::trial(mechanism, opened));
    }
    trials.extend(others::trials(opened));
    trials.extend(additive::trials(device));
    trials.extend(conditions::trials(device));
    trials.extend(decode::trials(opened));
    trials.extend(hard::trials(device));
    trials.extend(local::trials(device));
    trials.extend(lsh::trials(device));
    trials.extend(multi_head::trials(opened));
    trials.extend(golden::trials(device));
    trials.extend(explain::trials(opened));
    trials.extend(extremes::trials(device));
    trials.extend(hidden::trials(device));
    trials.extend(entropy::trials(opened));
    trials.extend(redraw::trials(device));
    trials.extend(repeated::trials(opened));
    trials.extend(tiled::trials(device));
    trials.push(work::trial(device));
    for problem in catalogue() {
        let name = format!("standard/{}/weights", problem.name);
        let device = device.clone();
        trials.push(Trial::test(name, move || {
            weights_match_the_oracle(&problem, &device)
        }));
    }
    trials
}

/// The half-precision types the device computes in.
fn half_types(opened: &Opened) -> impl Iterator<Item = (Dtype, DType)> {
    [(Dtype::F16, DType::F16), (Dtype::Bf16, DType::BF16)]
        .into_iter()
        .filter(|(word, _)| opened.dtypes.contains(word))
}

/// A trial whose errors count towards the worst.
fn judged(
    name: String,
    judge: impl FnOnce() -> Result<Errors, Mismatch> + Send + 'static,
) -> Trial {
    let is_wide = name.ends_with("/forward") || name.ends_with("/gradients");
    let worst = if is_wide { &WORST } else { &WORST_IN_HALF };
    Trial::test(name, move || {
        let errors = judge()?;
        let mut worst = worst.lock().expect("no trial panicked while holding it");
        *worst = worst.max(errors);
        Ok(())
    })
}

fn weights_match_the_oracle(problem: &Problem, device: &Device) -> Result<(), Failed> {
    let inputs = problem.inputs();
    let tensors = Tensors::new(problem, &inputs, device);
    let attended = standard(tensors.query, tensors.key, tensors.value, &tensors.options);
    let answer = solve(problem, &inputs);
    Precision::F32.forward(answer.largest_score).check(
        "weights",
        &numbers(attended.weights),
        &answer.weights,
    )?;
    Ok(())
}
