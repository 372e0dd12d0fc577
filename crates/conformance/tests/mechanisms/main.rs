//! Every mechanism on every problem of the catalogue, on the device that
//! `ZOO_BACKEND` names (default: flex). A device that cannot be opened fails the run.

mod misuses;
mod promises;

use std::process::ExitCode;
use std::sync::Mutex;

use burn::tensor::Device;
use libtest_mimic::{Arguments, Failed, Trial};
use zoo_attention::{Mechanism, standard};
use zoo_backend::{BackendWord, Dtype, Opened};
use zoo_conformance::{Errors, Tensors, check_forward, check_gradients};
use zoo_testkit::{Problem, Tolerance, catalogue, solve};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let opened = match open() {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("device: {opened}");
    let conclusion = libtest_mimic::run(&arguments, trials(&opened.device));
    let worst = WORST.lock().expect("no trial panicked while holding it");
    println!(
        "worst error: {:.1e} forward, {:.1e} backward, {:.0}% of what is allowed",
        worst.context,
        worst.gradients,
        worst.share * 100.0,
    );
    conclusion.exit_code()
}

fn open() -> Result<Opened, Box<dyn std::error::Error>> {
    let word = std::env::var("ZOO_BACKEND").unwrap_or_else(|_| "flex".to_owned());
    Ok(zoo_backend::open(word.parse::<BackendWord>()?, Dtype::F32)?)
}

static WORST: Mutex<Errors> = Mutex::new(Errors {
    context: 0.0,
    gradients: 0.0,
    share: 0.0,
});

fn trials(device: &Device) -> Vec<Trial> {
    let mut trials = Vec::new();
    for mechanism in Mechanism::ALL {
        for problem in catalogue() {
            for (kind, check) in [
                ("forward", check_forward as Check),
                ("gradients", check_gradients),
            ] {
                let (problem, device) = (problem.clone(), device.clone());
                let name = format!("{mechanism}/{}/{kind}", problem.name);
                trials.push(Trial::test(name, move || {
                    let errors = check(mechanism, &problem, &device)?;
                    let mut worst = WORST.lock().expect("no trial panicked while holding it");
                    *worst = worst.max(errors);
                    Ok(())
                }));
            }
        }
    }
    for problem in catalogue() {
        let name = format!("standard/{}/weights", problem.name);
        let device = device.clone();
        trials.push(Trial::test(name, move || {
            weights_match_the_oracle(&problem, &device)
        }));
    }
    trials.extend(promises::trials(device));
    trials.extend(misuses::trials(device));
    trials
}

type Check = fn(Mechanism, &Problem, &Device) -> Result<Errors, zoo_testkit::Mismatch>;

fn weights_match_the_oracle(problem: &Problem, device: &Device) -> Result<(), Failed> {
    let inputs = problem.inputs();
    let tensors = Tensors::new(problem, &inputs, device);
    let attended = standard(tensors.query, tensors.key, tensors.value, &tensors.options);
    let weights: Vec<f32> = attended.weights.try_into_vec_as()?;
    let answer = solve(problem, &inputs);
    Tolerance::F32_FORWARD
        .for_scores_up_to(answer.largest_score)
        .check("weights", &weights, &answer.weights)?;
    Ok(())
}
