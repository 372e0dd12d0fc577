//! The other side of `--vs pytorch`: the same problems, the same inputs, in a
//! Python process that samples and reports as `zoo-bench` does; which of our cases it is asked to
//! compute, and whether it did the same.

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

zoo_spec::words! {
    /// What PyTorch is asked for.
    pub enum Way: "way" {
        /// `scaled_dot_product_attention`, its fused kernels.
        Sdpa = "sdpa",
        /// A matmul, a softmax and a matmul.
        Plain = "plain",
        /// A model of recurrent layers, with an attention of its own.
        Additive = "additive",
    }
}

impl Way {
    /// Those of a task, in the order they are run. A model is asked for once, with the best
    /// attention that PyTorch has for it.
    pub fn of(task: &Task) -> &'static [Self] {
        match task {
            Task::Matmul { .. } => &[],
            Task::Attention { .. } => &[Self::Sdpa, Self::Plain],
            Task::Model { setup, .. } => match setup.model {
                Model::Han | Model::Seq2Seq => &[Self::Additive],
                Model::Transformer | Model::Gpt | Model::Classifier => &[Self::Sdpa],
            },
        }
    }
}

/// A Python that has torch, and the inputs it reads.
#[derive(Debug)]
pub struct PyTorch {
    python: PathBuf,
    scripts: PathBuf,
    environment: Environment,
    device: &'static str,
    /// Where inputs are written, one folder a problem; removed at the end.
    inputs: PathBuf,
}

impl PyTorch {
    /// Measures with `python` and the scripts in a folder, on PyTorch's CPU or CUDA device.
    pub fn new(
        python: PathBuf,
        scripts: PathBuf,
        environment: Environment,
        device: &'static str,
    ) -> io::Result<Self> {
        // Several may be at work in one process, and each removes its own.
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

    /// The process that measures a case this way. Some problems cannot be put to PyTorch's attention.
    pub(crate) fn command(&self, case: &Case, way: Way, dtype: Dtype) -> io::Result<Command> {
        let (script, flag, path) = match &case.task {
            Task::Matmul { .. } => return Err(io::Error::other("it is not asked for matmuls")),
            Task::Attention { problem, .. } => {
                if let Some(option) = only_ours(problem) {
                    return Err(io::Error::other(format!(
                        "PyTorch's attention is not compared on problems with {option}"
                    )));
                }
                ("attention.py", "--inputs", self.inputs_of(problem)?)
            }
            Task::Model { setup, .. } => ("model.py", "--setup", self.setup_of(setup)?),
        };
        let pass = match case.pass {
            // One query with all keys: it has no other way.
            Pass::Decode => Pass::Forward,
            other => other,
        };
        let mut command = Command::new(&self.python);
        command
            .arg(self.scripts.join(script))
            .arg(flag)
            .arg(path)
            .args(["--device", self.device])
            .args(["--dtype", dtype.word()])
            .args(["--way", way.word()])
            .args(["--pass", pass.word()])
            // Nothing is left among the sources.
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .envs(self.environment.clone());
        Ok(command)
    }

    /// The file that says what model to build on what batch.
    fn setup_of(&self, setup: &Setup) -> io::Result<PathBuf> {
        let mut description = serde_json::to_value(setup)?;
        description["prompt"] = setup.prompt().into();
        description["generated"] = setup.generated().into();
        let name = format!("{}-{}.json", setup.name(), setup.n);
        let path = self.inputs.join(name);
        fs::write(&path, description.to_string())?;
        Ok(path)
    }

    /// The folder with a problem's inputs, written when it is first asked for.
    fn inputs_of(&self, problem: &Problem) -> io::Result<PathBuf> {
        let name = format!("{}-{}", problem.name, problem.seq_k);
        let folder = self.inputs.join(&name);
        if folder.exists() {
            return Ok(folder);
        }
        let partial = self.inputs.join(format!(".{name}"));
        fs::create_dir_all(&partial)?;
        let inputs = problem.inputs();
        for (name, numbers) in [
            ("query", &inputs.query),
            ("key", &inputs.key),
            ("value", &inputs.value),
            ("upstream", &inputs.upstream),
        ] {
            let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            fs::write(partial.join(name), bytes)?;
        }
        // Square causal attention is the one mask PyTorch has a word for.
        let causal = problem.mask == Mask::Causal && problem.seq_q == problem.seq_k;
        // The last place sees everything.
        let is_last = problem.mask == Mask::Causal && problem.seq_q == 1;
        let dense_mask = !causal && !is_last && problem.mask != Mask::Full;
        if dense_mask {
            let hidden: Vec<u8> = problem.hidden().into_iter().map(u8::from).collect();
            fs::write(partial.join("hidden"), hidden)?;
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
        fs::write(partial.join("problem.json"), description.to_string())?;
        fs::rename(&partial, &folder)?;
        Ok(folder)
    }
}

/// What of a problem PyTorch's attention has no argument for, or not with our meaning.
fn only_ours(problem: &Problem) -> Option<&'static str> {
    [
        (problem.softcap.is_some(), "a softcap"),
        (problem.alibi, "ALiBi"),
        (problem.bias.is_some(), "a bias"),
        (problem.dropout.is_some(), "dropout"),
    ]
    .into_iter()
    .find_map(|(is_there, option)| is_there.then_some(option))
}

impl Drop for PyTorch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.inputs);
    }
}

/// Whether PyTorch is asked for a case. Where a mechanism has fewer key and value heads, it
/// is held against the same as those that have all.
pub(crate) fn is_asked(case: &Case) -> bool {
    match &case.task {
        Task::Matmul { .. } => false,
        Task::Attention { problem, .. } => {
            find(problem.name).is_some_and(|own| own.kv_heads == problem.kv_heads)
        }
        Task::Model { .. } => true,
    }
}

/// What PyTorch is not asked for of a case, if it is not.
pub fn skipped(case: &Case) -> Option<Skipped> {
    let reason = "it is compared with PyTorch's attention of as many key heads as query heads";
    (!is_asked(case)).then(|| {
        let subject = format!("pytorch beside {}", case.subject());
        Skipped::new(case, &subject, reason.to_owned())
    })
}

/// Whether PyTorch computes the same for both.
pub(crate) fn is_same(one: &Case, other: &Case) -> bool {
    let same = match (&one.task, &other.task) {
        (Task::Attention { problem: one, .. }, Task::Attention { problem: other, .. }) => {
            one == other
        }
        (Task::Model { setup: one, .. }, Task::Model { setup: other, .. }) => one == other,
        _ => false,
    };
    same && one.pass == other.pass
}

/// PyTorch's report with the work of our model that is the same, if that was measured before. One
/// with other parameters is another model, and has no time.
pub(crate) fn compared_with_ours(
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
            && line.id.is_of_same_problem(id)
            && attention.is_ok_and(|attention| setup.model.is_same_in_pytorch(attention))
    };
    let mut measured = before.iter().filter(is_ours);
    let found = measured.find_map(|line| Some((line.report.work, line.report.parameters?)));
    if let Some((work, ours)) = found {
        report.work = work;
        if ours != theirs {
            let detail = format!("it is another model: {theirs} parameters, and ours has {ours}");
            report.outcome = Outcome::wrong(detail);
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use zoo_spec::Mechanism;

    use super::*;
    use crate::for_tests::line;
    use crate::model::Size;

    fn gpt(attention: Mechanism) -> Case {
        Case::model(Setup::new(Model::Gpt, Size::Tiny), attention, Pass::Train)
    }

    #[test]
    fn a_model_is_asked_for_once_whatever_its_attention() {
        let (flash, linear) = (gpt(Mechanism::Flash), gpt(Mechanism::Linear));
        assert!(is_asked(&flash) && is_same(&flash, &linear));
        let generating = Case {
            pass: Pass::Generate,
            ..flash.clone()
        };
        assert!(!is_same(&flash, &generating));
        assert!(!is_asked(&Case::matmul()));
    }

    #[test]
    fn pytorch_has_our_work_and_must_have_our_parameters() {
        let case = gpt(Mechanism::Flash);
        let of = |backend: &str, subject: &str, parameters, work| {
            let mut line = line(subject, case.n(), &[1.0]);
            line.id.backend = backend.to_owned();
            line.id.problem = case.name();
            line.id.pass = case.pass;
            line.report.parameters = Some(parameters);
            line.report.work = Some(work);
            line
        };
        let before = [
            of("flex", "multi-query", 90, 8.0),
            of("flex", "flash", 100, 10.0),
        ];
        let theirs = of("pytorch", "sdpa", 0, 0.0);
        let compared = |parameters| {
            let report = Report {
                parameters: Some(parameters),
                ..theirs.report.outcome.clone().into()
            };
            compared_with_ours(&theirs.id, &case, &before, report)
        };
        let report = compared(100);
        assert_eq!(report.work, Some(10.0));
        assert_eq!(report.outcome, theirs.report.outcome);
        let outcome = format!("{:?}", compared(99).outcome);
        let says = "99 parameters, and ours has 100";
        assert!(
            outcome.contains("Wrong") && outcome.contains(says),
            "{outcome}"
        );
    }
}
