//! The PyTorch side of `--vs pytorch`: a Python process runs the same problems on the same inputs
//! and samples and reports like `zoo-bench`.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use zoo_oracle::{Mask, Problem, find};
use zoo_spec::Dtype;

use crate::case::{Case, Pass, Task, queries_to_check};
use crate::model::{Model, Setup};
use crate::record::{CaseId, CaseLine, Outcome, Report, Skipped};
use crate::run::Environment;

zoo_spec::names! {
    pub enum Implementation: "implementation" {
        /// `scaled_dot_product_attention` with its fused kernels.
        Sdpa = "sdpa",
        Plain = "plain",
        /// Additive attention of the recurrent models.
        Additive = "additive",
    }
}

impl Implementation {
    /// Implementations of a task, in running order. A model has one, with the fastest attention
    /// that PyTorch has for it.
    pub fn for_task(task: &Task) -> &'static [Self] {
        match task {
            Task::Matmul => &[],
            Task::Attention { .. } => &[Self::Sdpa, Self::Plain],
            Task::Model { setup, .. } => match setup.model {
                Model::Han | Model::Seq2Seq => &[Self::Additive],
                Model::Transformer | Model::Gpt | Model::Classifier => &[Self::Sdpa],
            },
        }
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

    /// The command that measures a case; an error if PyTorch does not support the problem.
    pub(crate) fn command(
        &self,
        case: &Case,
        implementation: Implementation,
        dtype: Dtype,
    ) -> io::Result<Command> {
        let (script, flag, path) = match &case.task {
            Task::Matmul => return Err(io::Error::other("matmul is not compared")),
            Task::Attention { problem, .. } => {
                if let Some(option) = unsupported_option(problem) {
                    let message = format!("problems with {option} are not compared");
                    return Err(io::Error::other(message));
                }
                ("attention.py", "--inputs", self.write_inputs(problem)?)
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
            .args(["--implementation", implementation.name()])
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

    /// Writes the inputs of a problem, unless they exist, and returns their folder.
    fn write_inputs(&self, problem: &Problem) -> io::Result<PathBuf> {
        let name = format!("{}-{}", problem.name, problem.seq_k);
        let folder = self.inputs.join(name);
        // Written last.
        let description_path = folder.join("problem.json");
        if description_path.exists() {
            return Ok(folder);
        }
        fs::create_dir_all(&folder)?;
        let inputs = problem.inputs();
        for (name, values) in [
            ("query", &inputs.query),
            ("key", &inputs.key),
            ("value", &inputs.value),
            ("upstream", &inputs.output_grad),
        ] {
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            fs::write(folder.join(name), bytes)?;
        }
        // `is_causal` of PyTorch is meant for square attention.
        let causal = problem.mask == Mask::Causal && problem.seq_q == problem.seq_k;
        // The last query attends to all keys.
        let is_last_query = problem.mask == Mask::Causal && problem.seq_q == 1;
        let dense_mask = !causal && !is_last_query && problem.mask != Mask::Full;
        if dense_mask {
            let mask: Vec<u8> = problem.dense_mask().into_iter().map(u8::from).collect();
            fs::write(folder.join("mask"), mask)?;
        }
        let description = json!({
            "query": problem.query_shape(),
            "key": problem.key_shape(),
            "value": problem.value_shape(),
            "scale": problem.scale(),
            "causal": causal,
            "dense_mask": dense_mask,
            "queries_to_check": queries_to_check(problem),
        });
        fs::write(description_path, description.to_string())?;
        Ok(folder)
    }
}

/// An option of a problem that PyTorch's attention does not support with the same meaning.
fn unsupported_option(problem: &Problem) -> Option<&'static str> {
    [
        (problem.softcap.is_some(), "a softcap"),
        (problem.alibi, "ALiBi"),
        (problem.bias.is_some(), "a bias"),
        (problem.dropout.is_some(), "dropout"),
    ]
    .into_iter()
    .find_map(|(is_set, option)| is_set.then_some(option))
}

impl Drop for PyTorch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.inputs);
    }
}

/// Whether PyTorch runs a case. Mechanisms with fewer key/value heads are compared with the result
/// of the original problem.
pub(crate) fn is_compared(case: &Case) -> bool {
    match &case.task {
        Task::Matmul => false,
        Task::Attention { problem, .. } => {
            find(problem.name).is_some_and(|own| own.kv_heads == problem.kv_heads)
        }
        Task::Model { .. } => true,
    }
}

/// The skipped PyTorch case, if PyTorch does not run `case`.
pub fn skipped(case: &Case) -> Option<Skipped> {
    let reason = "PyTorch is measured only with as many key heads as query heads; \
                  vs PyTorch is relative to that";
    (!is_compared(case)).then(|| {
        let subject = format!("pytorch for {}", case.subject());
        Skipped::new(case, &subject, reason.to_owned())
    })
}

/// Whether both cases are compared with the same PyTorch result.
pub(crate) fn is_same(one: &Case, other: &Case) -> bool {
    let [one, other] = [one, other].map(|case| {
        let key = (case.name(), case.n(), case.pass);
        is_compared(case).then_some(key)
    });
    one.is_some() && one == other
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
        line.id.backend != id.backend
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
    use zoo_spec::Mechanism;

    use super::*;
    use crate::model::Size;
    use crate::test_utils::{as_model, line, on_backend};

    fn gpt(attention: Mechanism) -> Case {
        Case::model(Setup::new(Model::Gpt, Size::Tiny), attention, Pass::Train)
    }

    #[test]
    fn model_is_run_once_for_all_attention_mechanisms() {
        let (flash, linear) = (gpt(Mechanism::Flash), gpt(Mechanism::Linear));
        assert!(is_compared(&flash) && is_same(&flash, &linear));
        let generating = Case {
            pass: Pass::Generate,
            ..flash.clone()
        };
        assert!(!is_same(&flash, &generating));
        assert!(!is_compared(&Case::matmul()));
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
