//! The PyTorch side of `--vs pytorch`: a Python process runs the same problems on the same inputs
//! and samples and reports like `zoo-bench`.

mod expected;
mod support;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use zoo_oracle::Problem;
use zoo_spec::{Dtype, Mechanism};

use self::expected::Expected;
use self::support::{needs_dense_mask, unsupported_reason};
use crate::case::{Case, Pass, Task, own_problem};
use crate::library::is_last_of_problem;
use crate::model::{Model, Setup};
use crate::record::{CaseId, CaseLine, Outcome, Report, Skipped};
use crate::run::Environment;

/// Name of a PyTorch case in results: what PyTorch calls it, or the mechanism. Models have the
/// fastest attention that PyTorch has for them.
pub(crate) fn subject(task: &Task) -> &'static str {
    match task {
        Task::Matmul => "matmul",
        Task::Attention { mechanism, .. } => subject_of(mechanism.name()),
        Task::BurnAttention { .. } => SDPA,
        Task::Model { setup, .. } => match setup.model {
            Model::Han | Model::Seq2Seq => "additive",
            Model::Transformer | Model::Gpt | Model::Classifier => SDPA,
        },
    }
}

/// `scaled_dot_product_attention` with its fused kernels.
pub(crate) const SDPA: &str = "sdpa";

/// PyTorch's name of a mechanism: `flash` is SDPA, `standard` is matmul, softmax and matmul.
pub(crate) fn subject_of(mechanism: &str) -> &str {
    match mechanism {
        "flash" => SDPA,
        "standard" => "plain",
        other => other,
    }
}

/// A Python interpreter with torch, and the input files it reads.
#[derive(Debug)]
pub struct PyTorch {
    python: PathBuf,
    scripts: PathBuf,
    environment: Environment,
    device: &'static str,
    /// Temporary folder with one subfolder per problem; removed on drop.
    inputs: PathBuf,
}

impl PyTorch {
    /// `device` is `cpu` or `cuda`.
    pub fn new(
        python: PathBuf,
        scripts: PathBuf,
        environment: Environment,
        device: &'static str,
    ) -> io::Result<Self> {
        // Several instances in one process need separate folders.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("zoo-pytorch-{}-{count}", std::process::id());
        let inputs = std::env::temp_dir().join(name);
        fs::create_dir_all(&inputs)?;
        Ok(Self {
            python,
            scripts,
            environment,
            device,
            inputs,
        })
    }

    /// The command that measures a case, after its inputs have been written.
    pub(crate) fn command(&self, case: &Case, dtype: Dtype) -> io::Result<Command> {
        let (script, flag, path) = match &case.task {
            Task::Matmul | Task::BurnAttention { .. } => {
                let message = format!("{} is not compared", case.subject());
                return Err(io::Error::other(message));
            }
            Task::Attention { mechanism, problem } => {
                let inputs = self.write_inputs(*mechanism, problem)?;
                ("attention.py", "--inputs", inputs)
            }
            Task::Model { setup, .. } => ("model.py", "--setup", self.write_setup(setup)?),
        };
        let pass = match case.pass {
            // One query with all keys.
            Pass::Decode => Pass::Forward,
            other => other,
        };
        let mut command = Command::new(&self.python);
        command
            .arg(self.scripts.join(script))
            .arg(flag)
            .arg(path)
            .args(["--device", self.device])
            .args(["--dtype", dtype.name()])
            .args(["--pass", pass.name()])
            // Do not write __pycache__ into the source folder.
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .envs(self.environment.clone());
        Ok(command)
    }

    fn write_setup(&self, setup: &Setup) -> io::Result<PathBuf> {
        let mut description = serde_json::to_value(setup)?;
        description["prompt"] = setup.prompt_len().into();
        description["generated"] = setup.generated_len().into();
        let name = format!("{}-{}.json", setup.name(), setup.n);
        let path = self.inputs.join(name);
        fs::write(&path, description.to_string())?;
        Ok(path)
    }

    /// Writes the inputs, the parameters and the oracle's results of a mechanism on a problem, unless
    /// they exist, and returns their folder. Its parent has the inputs, which mechanisms share.
    fn write_inputs(&self, mechanism: Mechanism, problem: &Problem) -> io::Result<PathBuf> {
        let (name, n, kv_heads) = (problem.name, problem.seq_k, problem.kv_heads);
        let shared = self.inputs.join(format!("{name}-{n}-{kv_heads}"));
        let folder = shared.join(mechanism.name());
        // Written last.
        let description = folder.join("problem.json");
        if description.exists() {
            return Ok(folder);
        }
        fs::create_dir_all(&folder)?;
        let inputs = problem.inputs();
        if !shared.join("query").exists() {
            write_f32(&shared.join("output_grad"), &inputs.output_grad)?;
            write_f32(&shared.join("value"), &inputs.value)?;
            write_f32(&shared.join("key"), &inputs.key)?;
            if needs_dense_mask(problem) {
                let mask: Vec<u8> = problem.dense_mask().into_iter().map(u8::from).collect();
                fs::write(shared.join("mask"), mask)?;
            }
            write_f32(&shared.join("query"), &inputs.query)?;
        }
        let expected = Expected::new(mechanism, problem, &inputs)
            .ok_or_else(|| io::Error::other(format!("{mechanism} does not support {name}")))?;
        for (name, _, values) in &expected.parameters {
            write_f32(&folder.join(name), values)?;
        }
        write_f32(&folder.join("noise"), &expected.noise)?;
        for (name, _, values) in &expected.results {
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            fs::write(folder.join(name), bytes)?;
        }
        fs::write(description, expected.describe(problem).to_string())?;
        Ok(folder)
    }
}

fn write_f32(path: &Path, values: &[f32]) -> io::Result<()> {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(path, bytes)
}

impl Drop for PyTorch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.inputs);
    }
}

/// The skipped PyTorch case, if PyTorch does not run `case`.
pub fn skipped(case: &Case) -> Option<Skipped> {
    let reason = unsupported_reason(case)?;
    let subject = format!("pytorch {}", subject(&case.task));
    Some(Skipped::new(case, &subject, reason))
}

/// The PyTorch cases that run after `cases[i]`: the same mechanism; SDPA, once for each problem; a
/// model, once for all its attention mechanisms.
pub(crate) fn cases_after(cases: &[Case], i: usize) -> Vec<Case> {
    let (case, is_last) = (&cases[i], is_last_of_problem(cases, i));
    let compared = match &case.task {
        Task::Matmul | Task::BurnAttention { .. } => vec![],
        Task::Model { .. } if is_last => vec![case.clone()],
        Task::Model { .. } => vec![],
        Task::Attention { problem, .. } => {
            let mut compared = vec![case.clone()];
            let mut same = cases.iter().filter(|other| other.is_same_problem(case));
            if is_last && !same.any(|other| subject(&other.task) == SDPA) {
                let own = own_problem(problem);
                compared.push(Case::attention(Mechanism::Flash, own, case.pass));
            }
            compared
        }
    };
    let is_supported = |case: &Case| unsupported_reason(case).is_none();
    compared.into_iter().filter(is_supported).collect()
}

/// Adds the FLOPs of our equivalent model. The outcome is wrong if the numbers of parameters differ.
pub(crate) fn with_flops_of_ours(
    id: &CaseId,
    case: &Case,
    before: &[CaseLine],
    mut report: Report,
) -> Report {
    let (Task::Model { setup, .. }, Some(theirs)) = (&case.task, report.parameters) else {
        return report;
    };
    let is_ours = |line: &&CaseLine| {
        let attention = line.id.subject.parse();
        line.id.is_ours()
            && line.id.is_same_problem(id)
            && attention.is_ok_and(|attention| setup.model.is_equivalent_in_pytorch(attention))
    };
    let mut measured = before.iter().filter(is_ours);
    if let Some(line) = measured.find(|line| line.report.parameters.is_some()) {
        report.work = line.report.work;
        if let Some(ours) = line.report.parameters.filter(|ours| *ours != theirs) {
            let detail = format!("different model: {theirs} parameters, ours has {ours}");
            report.outcome = Outcome::wrong(detail);
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::Size;
    use crate::test_utils::{as_model, line, on_backend};

    fn gpt(attention: Mechanism) -> Case {
        Case::model(Setup::new(Model::Gpt, Size::Tiny), attention, Pass::Train)
    }

    /// Subjects of the PyTorch cases after each of `cases`.
    fn subjects(cases: &[Case]) -> Vec<Vec<&'static str>> {
        let after = |i| cases_after(cases, i);
        let subjects = |cases: Vec<Case>| cases.iter().map(|case| subject(&case.task)).collect();
        (0..cases.len()).map(after).map(subjects).collect()
    }

    fn attention(mechanism: Mechanism, problem: &str, n: usize, pass: Pass) -> Case {
        let problem = crate::case::problem(problem, Some(n)).expect("in the catalogue");
        Case::attention(mechanism, problem, pass)
    }

    #[test]
    fn model_is_run_once_for_all_attention_mechanisms() {
        let (flash, linear) = (gpt(Mechanism::Flash), gpt(Mechanism::Linear));
        let generating = Case {
            pass: Pass::Generate,
            ..flash.clone()
        };
        let cases = [flash, generating, linear, Case::matmul()];
        assert_eq!(
            subjects(&cases),
            [vec![], vec!["sdpa"], vec!["sdpa"], vec![]]
        );
    }

    #[test]
    fn every_mechanism_is_compared_with_itself_and_with_sdpa() {
        let layer = |mechanism, n| attention(mechanism, "layer-causal", n, Pass::Train);
        for mechanism in Mechanism::ALL {
            let own = subject_of(mechanism.name());
            let expected = if own == SDPA {
                vec![own]
            } else {
                vec![own, SDPA]
            };
            assert_eq!(subjects(&[layer(mechanism, 256)]), [expected]);
        }
        let cases = [
            layer(Mechanism::Standard, 256),
            layer(Mechanism::Flash, 256),
            layer(Mechanism::MultiQuery, 256),
            layer(Mechanism::MultiQuery, 512),
        ];
        let expected = [
            vec!["plain"],
            vec!["sdpa"],
            vec!["multi-query"],
            vec!["multi-query", "sdpa"],
        ];
        assert_eq!(subjects(&cases), expected);
        // SDPA has as many key heads as query heads.
        let sdpa = &cases_after(&cases, 3)[1];
        assert_eq!(*sdpa, layer(Mechanism::Flash, 512));
    }

    #[test]
    fn unsupported_cases_are_skipped_with_a_reason() {
        let train = Pass::Train;
        for (case, reason) in [
            (attention(Mechanism::Flash, "layer", 512, train), None),
            (attention(Mechanism::Additive, "layer", 1024, train), None),
            (
                attention(Mechanism::Additive, "layer", 2048, Pass::Forward),
                None,
            ),
            (
                attention(Mechanism::Additive, "layer", 2048, train),
                Some("training would need 8.00 GiB in PyTorch"),
            ),
            (
                attention(Mechanism::Block, "layer-window", 512, train),
                None,
            ),
            (
                attention(Mechanism::LocalP, "layer-window", 512, train),
                Some("supports only full and causal attention"),
            ),
            (attention(Mechanism::Flash, "dense-mask", 5, train), None),
            (
                attention(Mechanism::Standard, "dense-mask", 5, train),
                Some("the softmax of fully masked queries is NaN"),
            ),
            (
                attention(Mechanism::Standard, "several-tiles", 210, train),
                None,
            ),
            (
                attention(Mechanism::Flash, "softcap", 6, train),
                Some("problems with a softcap are not compared"),
            ),
        ] {
            let skipped = skipped(&case);
            match (&skipped, reason) {
                (None, None) => {}
                (Some(skipped), Some(reason)) => assert!(skipped.reason.contains(reason)),
                _ => panic!("{case:?}: {skipped:?}, expected {reason:?}"),
            }
            let is_run = subjects(std::slice::from_ref(&case))[0].contains(&subject(&case.task));
            assert_eq!(is_run, reason.is_none(), "{case:?}");
        }
    }

    /// The script reads parameters, a sample of the oracle's results, and their rows.
    #[test]
    fn inputs_of_every_mechanism_are_written() {
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../benches/pytorch/mechanisms.py"
        );
        let script = fs::read_to_string(script).expect("the script");
        let scripts = PathBuf::from("scripts");
        let pytorch = PyTorch::new("python3".into(), scripts, vec![], "cpu").expect("a folder");
        for mechanism in Mechanism::ALL {
            assert!(
                script.contains(&format!("    \"{mechanism}\": ")),
                "{mechanism}"
            );
            let causal = zoo_spec::MechanismConfig::from(mechanism)
                .capabilities()
                .causal;
            let problem = causal.map_or("layer", |()| "layer-causal");
            let case = attention(mechanism, problem, 96, Pass::Train);
            let command = pytorch.command(&case, Dtype::F32).expect("written");
            let mut arguments = command.get_args().skip_while(|&text| text != "--inputs");
            let folder = PathBuf::from(arguments.nth(1).expect("a folder"));
            let text = fs::read_to_string(folder.join("problem.json")).expect("written");
            let description: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(description["mechanism"]["kind"], mechanism.name());
            let size = |path: PathBuf| fs::metadata(&path).map(|file| file.len() as usize);
            let size = |name: &str| size(folder.join(name)).unwrap_or_else(|_| panic!("no {name}"));
            let Task::Attention { problem, .. } = &case.task else {
                unreachable!("an attention case")
            };
            assert_eq!(
                size("../key"),
                4 * problem.key_shape().iter().product::<usize>()
            );
            for (name, width) in [
                ("context", 64),
                ("d_query", 64),
                ("d_key", 64),
                ("d_value", 64),
            ] {
                let rows = description["rows"][name].as_array().expect("rows").len();
                assert!(rows > 0);
                assert_eq!(size(name), 8 * width * rows, "{mechanism}: {name}");
            }
            let parameters = description["parameters"].as_object().expect("shapes");
            for (name, shape) in parameters {
                let shape = shape.as_array().expect("a shape").iter();
                let count: u64 = shape.map(|size| size.as_u64().expect("a size")).product();
                assert_eq!(size(name), 4 * count as usize, "{mechanism}: {name}");
            }
            let names: Vec<&str> = parameters.keys().map(String::as_str).collect();
            let expected: &[&str] = match mechanism {
                Mechanism::Additive => &["vector"],
                Mechanism::Multiplicative => &["matrix"],
                Mechanism::LocalP => &["matrix", "vector"],
                Mechanism::Sink => &["sink"],
                Mechanism::Relative => &["table"],
                Mechanism::Forgetting | Mechanism::Gla => &["log_decay"],
                Mechanism::Delta => &["strength"],
                Mechanism::NativeSparse => &["branch_gates"],
                Mechanism::Mamba2 | Mechanism::GatedDelta | Mechanism::Kda => {
                    &["log_decay", "strength"]
                }
                Mechanism::Differential => &["differential"],
                Mechanism::Linformer => &["projection"],
                Mechanism::Lsh | Mechanism::Performer => &["directions"],
                _ => &[],
            };
            assert_eq!(names, expected, "{mechanism}");
            let has = |key: &str| description.get(key).is_some();
            let is_constant = matches!(mechanism, Mechanism::Retention | Mechanism::Lightning);
            assert_eq!(has("decays"), is_constant);
            assert_eq!(has("blocks"), mechanism == Mechanism::BigBird);
            assert_eq!(description["noise"], json!(mechanism == Mechanism::Hard));
        }
    }

    #[test]
    fn pytorch_gets_our_flops_and_must_have_our_parameters() {
        let case = gpt(Mechanism::Flash);
        let model_line = |backend: &str, subject: &str, parameters, work| {
            let line = line(subject, case.n(), &[1.0]);
            let mut line = on_backend(backend, as_model(&case.name(), line));
            line.id.pass = case.pass;
            line.report.parameters = Some(parameters);
            line.report.work = Some(work);
            line
        };
        let before = [
            model_line("flex", "multi-query", 90, 8.0),
            model_line("flex", "flash", 100, 10.0),
        ];
        let theirs = model_line("pytorch", "sdpa", 0, 0.0);
        let compared = |parameters| {
            let report = Report {
                parameters: Some(parameters),
                ..theirs.report.outcome.clone().into()
            };
            with_flops_of_ours(&theirs.id, &case, &before, report)
        };
        let report = compared(100);
        assert_eq!(report.work, Some(10.0));
        assert_eq!(report.outcome, theirs.report.outcome);
        let detail = "different model: 99 parameters, ours has 100".to_owned();
        assert_eq!(compared(99).outcome, Outcome::wrong(detail));
    }
}
