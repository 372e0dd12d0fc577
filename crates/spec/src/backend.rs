//! The backends, by the word people write for each.

use std::fmt;
use std::str::FromStr;

use crate::UnknownWord;

crate::words! {
    /// A backend, before it is known whether this build or this machine has it.
    pub enum Backend: "backend" = Flex {
        /// Burn's maintained pure-Rust CPU backend; the default.
        Flex = "flex",
        /// Burn's older pure-Rust CPU backend.
        Ndarray = "ndarray",
        /// Any adapter WGPU reaches, with shaders in WGSL. Runs on software adapters too.
        Wgpu = "wgpu",
        /// A real Vulkan GPU, with shaders compiled straight to SPIR-V.
        Vulkan = "vulkan",
        /// LibTorch: on CUDA where it sees it, else on the CPU.
        Tch = "tch",
        /// LibTorch on the CPU.
        TchCpu = "tch-cpu",
        /// LibTorch on CUDA.
        TchCuda = "tch-cuda",
        /// Burn's own CUDA backend, passed through to `burn-cuda`.
        Cuda = "cuda",
    }
}

impl Backend {
    /// The backends that run on a machine without a GPU. `wgpu` is among them
    /// because a software Vulkan driver is enough for it.
    pub const WITHOUT_GPU: [Self; 4] = [Self::Flex, Self::Ndarray, Self::Wgpu, Self::TchCpu];

    /// The cargo feature, of the same name in every crate, that compiles it in.
    pub fn feature(self) -> &'static str {
        match self {
            Self::Tch | Self::TchCpu | Self::TchCuda => "tch",
            other => other.word(),
        }
    }

    /// Whether it needs LibTorch to be compiled and run.
    pub fn needs_libtorch(self) -> bool {
        self.feature() == "tch"
    }

    /// Whether a machine can have several of its devices, so that an index may follow.
    fn takes_index(self) -> bool {
        !matches!(self, Self::Flex | Self::Ndarray | Self::TchCpu | Self::Tch)
    }
}

/// What people write to choose a device: a backend and, after a colon, which of
/// its devices: `flex`, `wgpu:1`, `tch-cuda:0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BackendWord {
    /// The backend.
    pub backend: Backend,
    /// Which of its devices; `None` leaves the choice to the backend.
    pub index: Option<usize>,
}

impl From<Backend> for BackendWord {
    fn from(backend: Backend) -> Self {
        Self {
            backend,
            index: None,
        }
    }
}

impl fmt::Display for BackendWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.backend)?;
        match self.index {
            Some(index) => write!(f, ":{index}"),
            None => Ok(()),
        }
    }
}

impl serde::Serialize for BackendWord {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for BackendWord {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        word.parse().map_err(serde::de::Error::custom)
    }
}

/// Why a text is not a [`BackendWord`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseBackendError {
    /// No backend has this name.
    Unknown(UnknownWord),
    /// What follows the colon is not a device number.
    BadIndex {
        /// The backend before the colon.
        backend: Backend,
        /// The text after it.
        got: String,
    },
    /// The backend has one device only, so an index means nothing.
    NoIndex {
        /// The backend before the colon.
        backend: Backend,
    },
}

impl fmt::Display for ParseBackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(unknown) => unknown.fmt(f),
            Self::BadIndex { backend, got } => write!(
                f,
                "the device after \"{backend}:\" must be a number counted from 0, got \"{got}\"; \
                 write for example {backend}:0"
            ),
            Self::NoIndex {
                backend: Backend::Tch,
            } => write!(
                f,
                "\"tch\" picks its device by itself and takes no index; write tch-cuda:N to choose one"
            ),
            Self::NoIndex { backend } => write!(
                f,
                "\"{backend}\" has a single device and takes no index; write {backend}"
            ),
        }
    }
}

impl std::error::Error for ParseBackendError {}

/// Another name of the default backend.
const CPU_ALIAS: &str = "cpu";

impl FromStr for BackendWord {
    type Err = ParseBackendError;

    fn from_str(text: &str) -> Result<Self, ParseBackendError> {
        let (word, index) = match text.split_once(':') {
            Some((word, index)) => (word, Some(index)),
            None => (text, None),
        };
        let backend = match word {
            CPU_ALIAS => Backend::Flex,
            word => word.parse().map_err(|mut unknown: UnknownWord| {
                unknown.known.push(CPU_ALIAS.to_owned());
                ParseBackendError::Unknown(unknown)
            })?,
        };
        let index = match index {
            None => None,
            Some(_) if !backend.takes_index() => {
                return Err(ParseBackendError::NoIndex { backend });
            }
            Some(got) => Some(got.parse().map_err(|_| ParseBackendError::BadIndex {
                backend,
                got: got.to_owned(),
            })?),
        };
        Ok(Self { backend, index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back_and_an_index_may_follow() {
        let indexed = ["wgpu:1", "vulkan:0", "tch-cuda:12", "cuda:3"];
        for text in Backend::ALL.map(Backend::word).into_iter().chain(indexed) {
            let word: BackendWord = text.parse().expect(text);
            assert_eq!(word.to_string(), text);
        }
        assert_eq!("cpu".parse(), Ok(BackendWord::from(Backend::Flex)));
    }

    #[test]
    fn files_have_the_same_words() {
        let word: BackendWord = "wgpu:1".parse().expect("a word");
        let text = serde_json::to_string(&word).expect("plain data");
        assert_eq!(text, r#""wgpu:1""#);
        assert_eq!(serde_json::from_str::<BackendWord>(&text).ok(), Some(word));
        let error = serde_json::from_str::<BackendWord>(r#""wpgu""#).unwrap_err();
        assert!(error.to_string().contains("did you mean wgpu"), "{error}");
    }

    #[test]
    fn what_cannot_be_read_is_explained() {
        for (text, message) in [
            (
                "wpgu",
                "unknown backend \"wpgu\": did you mean wgpu?\n  \
                 known: flex, ndarray, wgpu, vulkan, tch, tch-cpu, tch-cuda, cuda, cpu",
            ),
            (
                "wgpu:one",
                "the device after \"wgpu:\" must be a number counted from 0, got \"one\"; \
                 write for example wgpu:0",
            ),
            (
                "flex:1",
                "\"flex\" has a single device and takes no index; write flex",
            ),
            (
                "tch:0",
                "\"tch\" picks its device by itself and takes no index; write tch-cuda:N to choose \
                 one",
            ),
        ] {
            let error = text.parse::<BackendWord>().unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
