//! Results file (JSON lines): one line about the run, then one per case.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::case::{Case, Pass};
use crate::machine::Machine;
use crate::units::{count, time};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    Run(RunInfo),
    Case(CaseLine),
    Skipped(Skipped),
}

/// A selected case that is not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub problem: String,
    pub n: usize,
    pub pass: Pass,
    /// The mechanism, or the case of another library.
    pub subject: String,
    pub reason: String,
}

impl Skipped {
    pub(crate) fn new(case: &Case, subject: &str, reason: String) -> Self {
        Self {
            problem: case.name(),
            n: case.n(),
            pass: case.pass,
            subject: subject.to_owned(),
            reason,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Start time in UTC.
    pub started: String,
    pub command: Vec<String>,
    /// Git commit, with `+changes` if the working tree is dirty.
    pub commit: Option<String>,
    pub version: String,
    pub burn: String,
    pub machine: Machine,
    /// CPU threads per process.
    pub threads: usize,
}

/// Key of a case: measurements with equal keys are comparable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CaseId {
    /// Backend name, or `pytorch`.
    pub backend: String,
    pub dtype: String,
    pub problem: String,
    /// Number of keys, or sequence length of a model.
    pub n: usize,
    pub pass: Pass,
    /// The (attention) mechanism, `matmul`, the PyTorch implementation, or `burn-attention`.
    pub subject: String,
}

impl CaseId {
    /// Whether problem, length, pass and dtype are equal.
    pub(crate) fn is_same_problem(&self, other: &Self) -> bool {
        self.problem == other.problem
            && (self.n, self.pass) == (other.n, other.pass)
            && self.dtype == other.dtype
    }
}

/// For example `flex standard on layer, train pass, sequence length 1,024, f32`.
impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (backend, subject, problem) = (&self.backend, &self.subject, &self.problem);
        let (pass, n, dtype) = (self.pass, count(self.n), &self.dtype);
        write!(f, "{backend} {subject} on {problem}, ")?;
        write!(f, "{pass} pass, sequence length {n}, {dtype}")
    }
}

/// One round of a case, or all its rounds [merged](crate::pool::pool).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseLine {
    #[serde(flatten)]
    pub id: CaseId,
    pub round: usize,
    /// Lower bound of the memory of any implementation.
    pub minimum_bytes: u64,
    /// Tokens per pass of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<usize>,
    /// Output of the benchmark program, with the FLOPs filled in.
    #[serde(flatten)]
    pub report: Report,
    /// Median of each round; empty before merging.
    #[serde(skip)]
    pub round_medians: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The results are correct.
    Measured(Measured),
    /// The results are wrong, so no time is reported.
    Wrong {
        /// Maximum error relative to the largest element of the tensor; `None` if not finite,
        /// which JSON cannot represent.
        error: Option<f64>,
        detail: String,
    },
    TimedOut {
        seconds: f64,
    },
    /// It exceeded the memory limit, or an allocation failed.
    OutOfMemory {
        detail: String,
    },
    Failed {
        message: String,
    },
}

impl Outcome {
    /// Wrong results without a numeric error.
    pub fn wrong(detail: String) -> Self {
        Self::Wrong {
            error: None,
            detail,
        }
    }

    pub fn measured(&self) -> Option<&Measured> {
        match self {
            Self::Measured(measured) => Some(measured),
            _ => None,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Measured(_) => "measured",
            Self::Wrong { .. } => "WRONG",
            Self::TimedOut { .. } => "TIMED OUT",
            Self::OutOfMemory { .. } => "OUT OF MEMORY",
            Self::Failed { .. } => "FAILED",
        }
    }

    /// The median time, or the name of the failure.
    pub fn summary(&self) -> String {
        let time = self.measured().map(|measured| time(measured.median()));
        time.unwrap_or_else(|| self.name().to_owned())
    }
}

/// Measurements of a case with correct results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Samples in seconds, in chronological order.
    pub seconds: Vec<f64>,
    pub peak: Option<Peak>,
    /// Maximum error relative to the largest element of the tensor.
    pub error: Option<f64>,
    /// Further checks that passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<String>,
}

impl Measured {
    /// The `q`-quantile of the samples in seconds; NaN if there are none.
    pub fn quantile(&self, q: f64) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            len => sorted[((len - 1) as f64 * q).round() as usize],
        }
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Inputs, outputs, gradients and activations.
    pub bytes: u64,
    /// How it was measured: `resident`, `allocator`, ...
    pub how: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub device: Option<String>,
    /// The kernel that ran, if the mechanism has several. Older files call it `body`.
    #[serde(default, alias = "body")]
    pub kernel: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// FLOPs of the matmuls in a pass, if the program counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<f64>,
    pub outcome: Outcome,
}

impl From<Outcome> for Report {
    fn from(outcome: Outcome) -> Self {
        Self {
            device: None,
            kernel: None,
            parameters: None,
            work: None,
            outcome,
        }
    }
}

/// Each line is flushed before the next case starts, so an interrupted run keeps its results.
#[derive(Debug)]
pub struct Writer {
    file: File,
}

impl Writer {
    /// Creates a results file. An existing file is an error: results are never overwritten.
    pub fn create(path: &Path, run: &RunInfo) -> io::Result<Self> {
        let mut writer = Self {
            file: File::create_new(path)?,
        };
        writer.write(&Line::Run(run.clone()))?;
        Ok(writer)
    }

    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        // A single call, so that lines are not split.
        self.file.write_all(text.as_bytes())?;
        self.file.flush()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    pub run: RunInfo,
    /// Cases in chronological order.
    pub cases: Vec<CaseLine>,
    /// Cases that were not run; empty in older files.
    pub skipped: Vec<Skipped>,
}

pub const FILE: &str = "results.jsonl";

impl Results {
    /// Reads a results file, or the one in a folder. A truncated last line is ignored.
    pub fn read(path: &Path) -> Result<Self> {
        let in_folder = path.join(FILE);
        let path = if path.is_dir() { &in_folder } else { path };
        let shown = path.display();
        let help = format!("help: give a run folder of cargo xtask bench or its {FILE}");
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {shown}\n  {help}"))?;
        let (mut run, mut cases, mut skipped) = (None, Vec::new(), Vec::new());
        let last = text.lines().count();
        for (number, text) in (1..).zip(text.lines()) {
            match serde_json::from_str(text) {
                Ok(Line::Run(info)) => run = Some(info),
                Ok(Line::Case(case)) => cases.push(case),
                Ok(Line::Skipped(case)) => skipped.push(case),
                Err(error) if error.is_eof() && number > 1 && number == last => {}
                Err(error) => bail!("{shown}, line {number}: {error}\n  {help}"),
            }
        }
        let run = run.with_context(|| {
            format!("{shown} is not a {FILE}: the first line does not describe a run")
        })?;
        Ok(Self {
            run,
            cases,
            skipped,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_utils::{failed_line, line, run_info, skipped};

    #[test]
    fn results_round_trip_and_a_truncated_end_is_ignored() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(FILE);
        let mut writer = Writer::create(&path, &run_info()).expect("a new file");
        let wrong = Outcome::wrong("context[0] is NaN".to_owned());
        let wrong = failed_line("standard", 512, wrong);
        let cases = [line("standard", 256, &[1.5, 2.5]), wrong];
        for case in &cases {
            writer.write(&Line::Case(case.clone())).expect("written");
        }
        let skipped = skipped("bigbird", 512, "not supported");
        let line = Line::Skipped(skipped.clone());
        writer.write(&line).expect("written");
        writer.file.write_all(b"{\"kind\":\"ca").expect("written");

        // Results are not overwritten.
        assert!(Writer::create(&path, &run_info()).is_err());
        let expected = Results {
            run: run_info(),
            cases: cases.to_vec(),
            skipped: vec![skipped],
        };
        assert_eq!(Results::read(folder.path()).expect("readable"), expected);
    }

    #[test]
    fn old_lines_can_be_read() {
        let old = r#"{"kind":"case","backend":"flex","dtype":"f32","problem":"layer","n":256,
            "pass":"forward","subject":"flash","round":1,"work":1e6,"minimum_bytes":1,
            "device":null,"body":"cpu-avx2",
            "outcome":{"measured":{"seconds":[0.5],"peak":null,"error":1e-7}}}"#;
        let Ok(Line::Case(case)) = serde_json::from_str(old) else {
            panic!("not a case")
        };
        assert_eq!((case.tokens, case.report.parameters), (None, None));
        assert_eq!(case.report.kernel.as_deref(), Some("cpu-avx2"));
        // Fields of models are not written for attention.
        let again = serde_json::to_string(&case).expect("written");
        for field in ["tokens", "checked"] {
            assert!(!again.contains(field), "{again}");
        }
    }
}
