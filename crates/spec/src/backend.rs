//! Backends and the names that select them.

use std::fmt;
use std::str::FromStr;

use crate::UnknownName;

crate::names! {
    /// A backend by name. It may be missing from this build or on this machine.
    pub enum Backend: "backend" = Flex {
        /// Burn's maintained pure-Rust CPU backend; the default.
        Flex = "flex",
        /// Burn's older pure-Rust CPU backend.
        Ndarray = "ndarray",
        /// Any WGPU adapter, hardware or software, with WGSL shaders.
        Wgpu = "wgpu",
        /// A Vulkan GPU, with shaders compiled to SPIR-V.
        Vulkan = "vulkan",
        /// LibTorch, on CUDA if available, else on the CPU.
        Tch = "tch",
        /// LibTorch on the CPU.
        TchCpu = "tch-cpu",
        /// LibTorch on CUDA.
        TchCuda = "tch-cuda",
        /// Burn's CUDA backend (`burn-cuda`).
        Cuda = "cuda",
    }
}

impl Backend {
    /// The backends that run without a GPU. `wgpu` is included because a software Vulkan driver is
    /// sufficient.
    pub const WITHOUT_GPU: [Self; 4] = [Self::Flex, Self::Ndarray, Self::Wgpu, Self::TchCpu];

    /// The cargo feature that enables it, the same in every crate.
    pub fn feature(self) -> &'static str {
        match self {
            Self::Tch | Self::TchCpu | Self::TchCuda => "tch",
            other => other.name(),
        }
    }

    /// Whether the backend requires LibTorch.
    pub fn needs_libtorch(self) -> bool {
        self.feature() == "tch"
    }

    /// Whether Burn implements its collective operations, such as all-reduce, for the backend.
    pub fn has_all_reduce(self) -> bool {
        match self {
            Self::Cuda => true,
            Self::Flex
            | Self::Ndarray
            | Self::Wgpu
            | Self::Vulkan
            | Self::Tch
            | Self::TchCpu
            | Self::TchCuda => false,
        }
    }

    /// Whether a device index may follow its name.
    fn takes_index(self) -> bool {
        !matches!(self, Self::Flex | Self::Ndarray | Self::TchCpu | Self::Tch)
    }
}

/// A backend and, after a colon, the index of a device: `flex`, `wgpu:1`, `tch-cuda:0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BackendId {
    /// The backend.
    pub backend: Backend,
    /// Device index; `None` selects the backend's default device.
    pub index: Option<usize>,
}

impl From<Backend> for BackendId {
    fn from(backend: Backend) -> Self {
        Self {
            backend,
            index: None,
        }
    }
}

impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.backend)?;
        match self.index {
            Some(index) => write!(f, ":{index}"),
            None => Ok(()),
        }
    }
}

impl serde::Serialize for BackendId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for BackendId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

/// The error of parsing a [`BackendId`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseBackendError {
    /// No backend has this name.
    Unknown(UnknownName),
    /// The text after the colon is not a device index.
    BadIndex {
        /// The backend before the colon.
        backend: Backend,
        /// The text after it.
        got: String,
    },
    /// The backend does not take a device index.
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
                "the device index after \"{backend}:\" must be an integer starting at 0, got \"{got}\"\n  \
                 help: for example {backend}:0"
            ),
            Self::NoIndex {
                backend: Backend::Tch,
            } => write!(
                f,
                "\"tch\" selects its device automatically and takes no index\n  \
                 help: write tch-cuda:N"
            ),
            Self::NoIndex { backend } => write!(
                f,
                "\"{backend}\" has a single device and takes no index\n  help: write {backend}"
            ),
        }
    }
}

impl std::error::Error for ParseBackendError {}

/// Alias of the default backend.
const CPU_ALIAS: &str = "cpu";

impl FromStr for BackendId {
    type Err = ParseBackendError;

    fn from_str(text: &str) -> Result<Self, ParseBackendError> {
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index)),
            None => (text, None),
        };
        let backend = match name {
            CPU_ALIAS => Backend::Flex,
            name => name.parse().map_err(|mut unknown: UnknownName| {
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
    fn names_and_indices_round_trip() {
        let indexed = ["wgpu:1", "vulkan:0", "tch-cuda:12", "cuda:3"];
        for text in Backend::ALL.map(Backend::name).into_iter().chain(indexed) {
            let id: BackendId = text.parse().expect(text);
            assert_eq!(id.to_string(), text);
        }
        assert_eq!("cpu".parse(), Ok(BackendId::from(Backend::Flex)));
    }

    #[test]
    fn serialized_as_a_string() {
        let id: BackendId = "wgpu:1".parse().expect("a backend");
        let text = serde_json::to_string(&id).expect("plain data");
        assert_eq!(text, r#""wgpu:1""#);
        assert_eq!(serde_json::from_str::<BackendId>(&text).ok(), Some(id));
        let error = serde_json::from_str::<BackendId>(r#""wpgu""#).unwrap_err();
        assert!(error.to_string().contains("did you mean wgpu"), "{error}");
    }

    #[test]
    fn parse_errors() {
        for (text, message) in [
            (
                "wpgu",
                "unknown backend \"wpgu\": did you mean wgpu?\n  \
                 known: flex, ndarray, wgpu, vulkan, tch, tch-cpu, tch-cuda, cuda, cpu",
            ),
            (
                "wgpu:one",
                "the device index after \"wgpu:\" must be an integer starting at 0, got \"one\"\n  \
                 help: for example wgpu:0",
            ),
            (
                "flex:1",
                "\"flex\" has a single device and takes no index\n  help: write flex",
            ),
            (
                "tch:0",
                "\"tch\" selects its device automatically and takes no index\n  help: write tch-cuda:N",
            ),
        ] {
            let error = text.parse::<BackendId>().unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
