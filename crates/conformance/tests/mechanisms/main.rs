//! Both ways of softmax attention on every problem of the catalogue, the other mechanisms
//! on those that are theirs, on the device that `ZOO_BACKEND` names (default: flex). A device that cannot be opened fails the run.

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
mod work;

use std::process::ExitCode;
use std::sync::Mutex;

use burn::tensor::{DType, Device};
use libtest_mimic::{Arguments, Failed, Trial};
use zoo_attention::{Mechanism, MechanismConfig, standard};
use zoo_backend::{Dtype, Opened, open_for_tests};
use zoo_conformance::{
    Errors, Suite, Tensors, all_queries, check_forward, check_gradients, judge_gradients, numbers,
    share,
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
    let mut suite = Suite::new(device);
    for mechanism in [Mechanism::Standard, Mechanism::Flash] {
        let config = MechanismConfig::from(mechanism);
        for problem in catalogue() {
            judged_by_both(
                &mut suite,
                &mechanism.to_string(),
                &config,
                &problem,
                device,
            );
            let name = format!("{mechanism}/{}", problem.name);
            for (word, dtype) in half_types(opened) {
                let device = device.clone().autodiff();
                let problem = problem.clone();
                suite.trials.push(judged(format!("{name}/{word}"), move || {
                    let tensors = Tensors::new(&problem, &problem.inputs(), &device);
                    let queries = all_queries(&problem);
                    judge_gradients(&config, &problem, tensors.cast(dtype), &queries)
                }));
            }
        }
        promises::trials(mechanism, &mut suite);
        misuses::trials(mechanism, &mut suite, device);
    }
    for mechanism in Mechanism::ALL {
        every::trials(mechanism, &mut suite);
        suite.trials.push(drawn::trial(mechanism, opened));
    }
    others::trials(&mut suite, opened);
    learned::trials(&mut suite);
    suite.add_table("conditions/", conditions::TESTS);
    decode::trials(&mut suite, opened);
    hard::trials(&mut suite);
    lsh::trials(&mut suite, device);
    multi_head::trials(&mut suite);
    golden::trials(&mut suite);
    explain::trials(&mut suite, opened);
    extremes::trials(&mut suite);
    hidden::trials(&mut suite);
    entropy::trials(&mut suite, opened);
    suite.add_table("redraw/", redraw::TESTS);
    repeated::trials(&mut suite, opened);
    suite.add_table("flash/", tiled::TESTS);
    suite.add("multi-head/work is counted", work::is_counted);
    for problem in catalogue() {
        let name = format!("standard/{}/weights", problem.name);
        suite.add(name, move |device| {
            weights_match_the_oracle(&problem, device)
        });
    }
    suite.trials
}

/// A problem through a mechanism, without gradients and with them.
pub(crate) fn judged_by_both(
    suite: &mut Suite,
    name: &str,
    mechanism: &MechanismConfig,
    problem: &Problem,
    device: &Device,
) {
    type Check = fn(&MechanismConfig, &Problem, &Device) -> Result<Errors, Mismatch>;
    let checks: [(&str, Check); 2] = [("forward", check_forward), ("gradients", check_gradients)];
    for (pass, check) in checks {
        let (mechanism, problem, device) = (*mechanism, problem.clone(), device.clone());
        let name = format!("{name}/{}/{pass}", problem.name);
        let trial = judged(name, move || check(&mechanism, &problem, &device));
        suite.trials.push(trial);
    }
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
    let attended = tensors.apply(standard);
    let answer = solve(problem, &inputs);
    Precision::F32.forward(answer.largest_score).check(
        "weights",
        &numbers(attended.weights),
        &answer.weights,
    )?;
    Ok(())
}
