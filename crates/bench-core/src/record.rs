//! What is written down: a line of JSON about the run, then one as each case ends.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::case::{Case, Pass};
use crate::machine::Machine;
use crate::units::{count, time};

/// One line of a results file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// The first: what holds for all.
    Run(RunInfo),
    Case(CaseLine),
    /// A case of the selection that was not run.
    Skipped(Skipped),
}

/// A case of a selection that is not run, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub problem: String,
    pub n: usize,
    pub pass: Pass,
    /// The mechanism, or what PyTorch was not asked for.
    pub subject: String,
    pub reason: String,
}

impl Skipped {
    /// A case that is not run, by the subject that does not run it.
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

/// What holds for all cases of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// When it began, in UTC.
    pub started: String,
    pub command: Vec<String>,
    /// The commit measured, with `+changes` where files differ from it.
    pub commit: Option<String>,
    pub version: String,
    pub burn: String,
    pub machine: Machine,
    /// Threads that each side was given.
    pub threads: usize,
}

/// What makes two measurements be of the same thing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CaseId {
    /// The backend's word, or `pytorch`.
    pub backend: String,
    pub dtype: String,
    pub problem: String,
    /// Its length: keys, or places of a sequence.
    pub n: usize,
    pub pass: Pass,
    /// The mechanism, `matmul`, or what PyTorch was asked for; of a model, its attention.
    pub subject: String,
}

impl CaseId {
    /// Whether both are of one problem in one pass and dtype, whatever computes it.
    pub(crate) fn is_of_same_problem(&self, other: &Self) -> bool {
        self.problem == other.problem
            && (self.n, self.pass) == (other.n, other.pass)
            && self.dtype == other.dtype
    }
}

/// In a line: `flex standard on layer at n = 1,024, train, f32`.
impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (backend, subject, problem) = (&self.backend, &self.subject, &self.problem);
        let (n, pass, dtype) = (count(self.n), self.pass, &self.dtype);
        write!(
            f,
            "{backend} {subject} on {problem} at n = {n}, {pass}, {dtype}"
        )
    }
}

/// One case, measured once, or all its rounds [together](crate::pool::pool).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseLine {
    #[serde(flatten)]
    pub id: CaseId,
    pub round: usize,
    /// Bytes no way of computing it can do without.
    pub minimum_bytes: u64,
    /// Tokens of a pass, of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<usize>,
    /// What the measuring program said, with the work filled in.
    #[serde(flatten)]
    pub report: Report,
    /// The median of each round; empty of a single one.
    #[serde(skip)]
    pub round_medians: Vec<f64>,
}

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It computed the right thing, in this time.
    Measured(Measured),
    /// It computed something else, and therefore has no time.
    Wrong {
        /// The worst error relative to the largest number of its tensor; infinite
        /// ones, which JSON has no word for, are `None`.
        error: Option<f64>,
        detail: String,
    },
    /// It had not ended by then.
    TimedOut { seconds: f64 },
    /// It needed more memory than there is.
    OutOfMemory { detail: String },
    /// It ended in another way.
    Failed { message: String },
}

impl Outcome {
    /// Something else was computed, and that cannot be said in a number.
    pub fn wrong(detail: String) -> Self {
        let error = None;
        Self::Wrong { error, detail }
    }

    pub fn measured(&self) -> Option<&Measured> {
        match self {
            Self::Measured(measured) => Some(measured),
            _ => None,
        }
    }

    /// What became of the case, in a word or three.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Measured(_) => "measured",
            Self::Wrong { .. } => "WRONG",
            Self::TimedOut { .. } => "TIMED OUT",
            Self::OutOfMemory { .. } => "OUT OF MEMORY",
            Self::Failed { .. } => "FAILED",
        }
    }

    /// The time, or what there is instead of it.
    pub fn summary(&self) -> String {
        let time = self.measured().map(|measured| time(measured.median()));
        time.unwrap_or_else(|| self.word().to_owned())
    }
}

/// The measurements of a case that computed the right thing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Each sample, in seconds, in the order they were taken.
    pub seconds: Vec<f64>,
    /// The most memory it took, where that can be told.
    pub peak: Option<Peak>,
    /// The worst error, relative to the largest number of its tensor.
    pub error: Option<f64>,
    /// What else was looked at, and found right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<String>,
}

impl Measured {
    /// The time that `share` of the samples are below, in seconds; NaN of no samples.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            len => sorted[((len - 1) as f64 * share).round() as usize],
        }
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Inputs, result, gradients and everything in between.
    pub bytes: u64,
    pub how: String,
}

/// What a measuring program prints when it is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The device, its versions with it, if it was reached.
    pub device: Option<String>,
    /// What computes the case there, where a mechanism has several ways.
    #[serde(default)]
    pub body: Option<String>,
    /// Of a model, how many parameters it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// Floating-point operations of the matmuls of a pass, where the program counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<f64>,
    pub outcome: Outcome,
}

impl From<Outcome> for Report {
    fn from(outcome: Outcome) -> Self {
        Self {
            device: None,
            body: None,
            parameters: None,
            work: None,
            outcome,
        }
    }
}

/// A results file being written. Each line is on the disk before the next case
/// starts, so that whatever ends a run, what was measured stays.
#[derive(Debug)]
pub struct Writer {
    file: File,
}

impl Writer {
    /// Begins a results file. One that is there is an error: results are never overwritten.
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
        // In one call: a line is there as a whole or not at all.
        self.file.write_all(text.as_bytes())?;
        self.file.flush()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    pub run: RunInfo,
    /// The cases, in the order they ended.
    pub cases: Vec<CaseLine>,
    /// Those that were not run. Runs before there were such lines have none.
    pub skipped: Vec<Skipped>,
}

/// The name of the results file in its folder.
pub const FILE: &str = "results.jsonl";

impl Results {
    /// Reads a results file, or the one in a folder. A last line that was cut off is left out.
    pub fn read(path: &Path) -> Result<Self> {
        let path = match path.is_dir() {
            true => &path.join(FILE),
            false => path,
        };
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| {
            format!(
                "cannot read {shown}\n  do: name a folder that cargo xtask bench wrote, or the \
                 {FILE} in it"
            )
        })?;
        let (mut run, mut cases, mut skipped) = (None, Vec::new(), Vec::new());
        let last = text.lines().count();
        for (at, text) in (1..).zip(text.lines()) {
            match serde_json::from_str(text) {
                Ok(Line::Run(info)) => run = Some(info),
                Ok(Line::Case(case)) => cases.push(case),
                Ok(Line::Skipped(case)) => skipped.push(case),
                Err(error) if error.is_eof() && at > 1 && at == last => {}
                Err(error) => bail!(
                    "{shown}, line {at}: {error}\n  do: name a {FILE} that cargo xtask bench wrote"
                ),
            }
        }
        let run = run.with_context(|| {
            format!("{shown} does not begin with a line about the run: it is no {FILE}")
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
    use crate::for_tests::{line, run_info, skipped};

    #[test]
    fn what_was_written_reads_back_even_if_the_end_was_cut_off() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(FILE);
        let mut writer = Writer::create(&path, &run_info()).expect("a new file");
        let mut wrong = line("standard", 512, &[]);
        wrong.report.outcome = Outcome::wrong("context[0] is NaN".to_owned());
        let cases = [line("standard", 256, &[1.5, 2.5]), wrong];
        for case in &cases {
            writer.write(&Line::Case(case.clone())).expect("written");
        }
        let skipped = skipped("bigbird", 512, "it cannot");
        let line = Line::Skipped(skipped.clone());
        writer.write(&line).expect("written");
        writer.file.write_all(b"{\"kind\":\"ca").expect("written");

        assert!(
            Writer::create(&path, &run_info()).is_err(),
            "nothing is overwritten"
        );
        let results = Results::read(folder.path()).expect("readable");
        assert_eq!(results.run, run_info());
        assert_eq!(results.cases, cases);
        assert_eq!(results.skipped, [skipped]);
    }

    /// As runs before there were models wrote it.
    #[test]
    fn an_old_line_is_still_one() {
        let old = r#"{"kind":"case","backend":"flex","dtype":"f32","problem":"layer","n":256,
            "pass":"forward","subject":"flash","round":1,"work":1e6,"minimum_bytes":1,
            "device":null,"body":null,
            "outcome":{"measured":{"seconds":[0.5],"peak":null,"error":1e-7}}}"#;
        let Ok(Line::Case(case)) = serde_json::from_str(old) else {
            panic!("it does not read")
        };
        assert_eq!((case.tokens, case.report.parameters), (None, None));
        // Nor does anything new come into the line of an attention.
        let again = serde_json::to_string(&case).expect("written");
        assert!(
            !again.contains("tokens") && !again.contains("checked"),
            "{again}"
        );
    }
}
