//! Golden values: tensors that another program computed, read from the file it wrote.
//!
//! The format is [safetensors](https://github.com/huggingface/safetensors): eight bytes
//! that say how long the header is, a header in JSON, the numbers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The tensors of a file by their names.
#[derive(Debug, Clone, PartialEq)]
pub struct Golden {
    /// What its maker wrote about it: the versions and the seed, among others.
    pub metadata: BTreeMap<String, String>,
    /// The tensors.
    pub tensors: BTreeMap<String, GoldenTensor>,
}

/// One tensor of a golden file.
#[derive(Debug, Clone, PartialEq)]
pub struct GoldenTensor {
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its numbers, row by row.
    pub numbers: Numbers,
}

/// Numbers as a file holds them.
#[derive(Debug, Clone, PartialEq)]
pub enum Numbers {
    /// What went in.
    F32(Vec<f32>),
    /// What came out, mostly.
    F64(Vec<f64>),
    /// Places and words.
    I64(Vec<i64>),
    /// Masks.
    Bool(Vec<bool>),
}

impl Numbers {
    /// As the type of what is compared with.
    pub fn to_f64(&self) -> Vec<f64> {
        match self {
            Self::F32(numbers) => numbers.iter().map(|&x| f64::from(x)).collect(),
            Self::F64(numbers) => numbers.clone(),
            Self::I64(numbers) => numbers.iter().map(|&x| x as f64).collect(),
            Self::Bool(numbers) => numbers.iter().map(|&x| f64::from(u8::from(x))).collect(),
        }
    }
}

/// Why there is no golden value.
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    /// The file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It is not what it should be.
    #[error("not a safetensors file: {0}")]
    Format(String),
    /// There is no such tensor.
    #[error("no tensor {name}; there are {there}")]
    Missing {
        /// The name that was asked for.
        name: String,
        /// Those that there are.
        there: String,
    },
}

impl Golden {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`GoldenError`] if it cannot be read or is no such file.
    pub fn read(path: &Path) -> Result<Self, GoldenError> {
        let bytes = std::fs::read(path).map_err(|error| GoldenError::File {
            path: path.to_owned(),
            error,
        })?;
        Self::from_bytes(&bytes)
    }

    /// Reads what a file holds.
    ///
    /// # Errors
    ///
    /// [`GoldenError::Format`] if it is no such file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, GoldenError> {
        let format = |what: &str| GoldenError::Format(what.to_owned());
        let (length, rest) = bytes
            .split_first_chunk()
            .ok_or_else(|| format("it ends before the length of its header"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (header, data) = rest
            .split_at_checked(length)
            .ok_or_else(|| format("it ends within its header"))?;
        let header: BTreeMap<String, Value> = serde_json::from_slice(header)
            .map_err(|error| GoldenError::Format(error.to_string()))?;

        let mut golden = Self {
            metadata: BTreeMap::new(),
            tensors: BTreeMap::new(),
        };
        for (name, value) in header {
            if name == "__metadata__" {
                golden.metadata = serde_json::from_value(value)
                    .map_err(|error| GoldenError::Format(format!("{name}: {error}")))?;
            } else {
                let tensor = tensor(&value, data)
                    .ok_or_else(|| GoldenError::Format(format!("{name}: {value}")))?;
                golden.tensors.insert(name, tensor);
            }
        }
        Ok(golden)
    }

    /// The tensor of that name.
    ///
    /// # Errors
    ///
    /// [`GoldenError::Missing`] if there is none.
    pub fn tensor(&self, name: &str) -> Result<&GoldenTensor, GoldenError> {
        self.tensors.get(name).ok_or_else(|| GoldenError::Missing {
            name: name.to_owned(),
            there: self.tensors.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }

    /// Those whose names begin with `prefix`, without it: a case, or a layer of a model.
    pub fn under(&self, prefix: &str) -> Self {
        let tensors = self.tensors.iter().filter_map(|(name, tensor)| {
            let rest = name.strip_prefix(prefix)?;
            Some((rest.to_owned(), tensor.clone()))
        });
        Self {
            metadata: self.metadata.clone(),
            tensors: tensors.collect(),
        }
    }
}

/// A tensor by what the header says of it; `None` if that makes no sense.
fn tensor(said: &Value, data: &[u8]) -> Option<GoldenTensor> {
    let sizes = |key: &str| -> Option<Vec<usize>> {
        let sizes = said.get(key)?.as_array()?.iter();
        sizes
            .map(|size| usize::try_from(size.as_u64()?).ok())
            .collect()
    };
    let shape = sizes("shape")?;
    let [start, end] = sizes("data_offsets")?.try_into().ok()?;
    let bytes = data.get(start..end)?;
    let numbers = match said.get("dtype")?.as_str()? {
        "F32" => Numbers::F32(each(bytes, f32::from_le_bytes)?),
        "F64" => Numbers::F64(each(bytes, f64::from_le_bytes)?),
        "I64" => Numbers::I64(each(bytes, i64::from_le_bytes)?),
        "BOOL" => Numbers::Bool(each(bytes, |[byte]| byte != 0)?),
        _ => return None,
    };
    let count = match &numbers {
        Numbers::F32(numbers) => numbers.len(),
        Numbers::F64(numbers) => numbers.len(),
        Numbers::I64(numbers) => numbers.len(),
        Numbers::Bool(numbers) => numbers.len(),
    };
    let wanted = shape
        .iter()
        .try_fold(1usize, |all, &size| all.checked_mul(size))?;
    (count == wanted).then_some(GoldenTensor { shape, numbers })
}

/// Numbers of `N` bytes each, if they come out even.
fn each<const N: usize, T>(bytes: &[u8], read: fn([u8; N]) -> T) -> Option<Vec<T>> {
    let (chunks, rest) = bytes.as_chunks();
    rest.is_empty()
        .then(|| chunks.iter().map(|chunk| read(*chunk)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = (header.len() as u64).to_le_bytes();
        [&length[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn what_was_written_is_read() {
        let header = r#"{"__metadata__": {"seed": "7"},
            "a.x": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
            "a.m": {"dtype": "BOOL", "shape": [3], "data_offsets": [8, 11]},
            "b": {"dtype": "F64", "shape": [], "data_offsets": [11, 19]},
            "c": {"dtype": "I64", "shape": [1], "data_offsets": [19, 27]}}"#;
        let data = [
            &1.5f32.to_le_bytes()[..],
            &(-2f32).to_le_bytes(),
            &[1, 0, 1],
            &0.25f64.to_le_bytes(),
            &(-9i64).to_le_bytes(),
        ];
        let golden = Golden::from_bytes(&file(header, &data.concat())).expect("a file");
        assert_eq!(golden.metadata["seed"], "7");
        let x = golden.tensor("a.x").expect("a tensor");
        assert_eq!(x.shape, [1, 2]);
        assert_eq!(x.numbers, Numbers::F32(vec![1.5, -2.0]));
        let a = golden.under("a.");
        assert_eq!(a.tensors.len(), 2);
        let mask = &a.tensor("m").expect("a tensor").numbers;
        assert_eq!(mask, &Numbers::Bool(vec![true, false, true]));
        assert_eq!(golden.tensors["b"].numbers.to_f64(), [0.25]);
        assert_eq!(golden.tensors["c"].numbers, Numbers::I64(vec![-9]));
        let error = golden.tensor("d").expect_err("there is none").to_string();
        assert_eq!(error, "no tensor d; there are a.m, a.x, b, c");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let tensor = |said: &str| file(&format!(r#"{{"x": {said}}}"#), &[0; 8]);
        for (bytes, part) in [
            (vec![1, 2], "before the length of its header"),
            (file("{", &[])[..8].to_vec(), "within its header"),
            (file("{", &[]), "EOF"),
            (
                tensor(r#"{"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}"#),
                "x: ",
            ),
            (
                tensor(r#"{"dtype": "F32", "shape": [2], "data_offsets": [0, 9]}"#),
                "x: ",
            ),
            (
                tensor(r#"{"dtype": "F16", "shape": [4], "data_offsets": [0, 8]}"#),
                "x: ",
            ),
        ] {
            let error = Golden::from_bytes(&bytes).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
