//! Other libraries that are measured beside our mechanisms.

use zoo_spec::names;

use crate::burn;
use crate::case::Case;
use crate::pytorch::{self, PyTorch};
use crate::record::{CaseId, Skipped};

names! {
    /// A library in `--vs`. The descriptions are printed by `--list`.
    pub enum Library: "library" {
        /// the same mechanisms and models in PyTorch, and its SDPA
        PyTorch = "pytorch",
        /// burn::tensor::module::attention, on each backend
        Burn = "burn",
    }
}

impl Library {
    /// The library of a case in results; `None` is ours.
    pub(crate) fn of(backend: &str, subject: &str) -> Option<Self> {
        if backend == Self::PyTorch.name() {
            Some(Self::PyTorch)
        } else if subject == burn::SUBJECT {
            Some(Self::Burn)
        } else {
            None
        }
    }

    /// Its name in sentences.
    pub fn title(self) -> &'static str {
        match self {
            Self::PyTorch => "PyTorch",
            Self::Burn => "Burn",
        }
    }

    /// The cases that the library does not run beside `cases`.
    pub fn skipped(self, cases: &[Case]) -> Vec<Skipped> {
        match self {
            Self::PyTorch => cases.iter().filter_map(pytorch::skipped).collect(),
            Self::Burn => burn::skipped(cases),
        }
    }
}

impl CaseId {
    /// The library that was measured; `None` is ours.
    pub fn library(&self) -> Option<Library> {
        Library::of(&self.backend, &self.subject)
    }

    pub fn is_ours(&self) -> bool {
        self.library().is_none()
    }
}

/// A library that is ready to be measured.
#[derive(Debug)]
pub enum Rival {
    PyTorch(PyTorch),
    /// It is part of the program of each backend.
    Burn,
}

/// Whether no later case has the problem, the length and the pass of `cases[i]`.
pub(crate) fn is_last_of_problem(cases: &[Case], i: usize) -> bool {
    !cases[i + 1..]
        .iter()
        .any(|other| other.is_same_problem(&cases[i]))
}

impl Case {
    pub(crate) fn is_same_problem(&self, other: &Self) -> bool {
        let key = |case: &Self| (case.name(), case.n(), case.pass);
        key(self) == key(other)
    }
}
