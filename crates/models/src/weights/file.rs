//! Weights in a file: `safetensors`, Burn's own `.bpk`, and what PyTorch saves.
//!
//! A file is read to its end before any of it is used, and written beside its place before
//! it is put there. What is written here carries a checksum of its numbers.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use burn::store::burn_pack::{AtomicFile, Error as PackError, Reader, Writer};
use burn::store::{ModuleStore, PytorchStore, bridge};
use burn::tensor::{Bytes, DType, TensorData};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::{Held, Weights, WeightsError, bounds};

/// The key of the checksum among what a file says of itself.
const CHECKSUM: &str = "zoo.checksum";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Safetensors,
    Burnpack,
    Pytorch,
}

impl Format {
    fn of(path: &Path) -> Result<Self, WeightsError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("safetensors") => Ok(Self::Safetensors),
            Some("bpk") => Ok(Self::Burnpack),
            Some("pt" | "pth" | "bin") => Ok(Self::Pytorch),
            _ => Err(WeightsError::Extension { path: path.into() }),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Burnpack => "Burn",
            Self::Pytorch => "PyTorch",
        }
    }

    fn broken(self, path: &Path, why: impl std::fmt::Display) -> WeightsError {
        WeightsError::Broken {
            path: path.into(),
            format: self.word(),
            why: why.to_string(),
        }
    }
}

/// What a file says, and what it says of itself.
type Contents = (BTreeMap<String, Held>, HashMap<String, String>);

impl Weights {
    /// Reads a file: `.safetensors`, `.bpk`, or what PyTorch saves, `.pt`, `.pth` or `.bin`.
    ///
    /// # Errors
    ///
    /// [`WeightsError`] if it is not there, not whole, or not as it was written.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, WeightsError> {
        let path = path.as_ref();
        let format = Format::of(path)?;
        let bytes = || std::fs::read(path).map_err(|source| file_error(path, source));
        let (tensors, metadata) = match format {
            Format::Safetensors => of_safetensors(path, &bytes()?)?,
            Format::Burnpack => of_burnpack(path, bytes()?)?,
            Format::Pytorch => {
                // Asked first, for a plain answer.
                let about = std::fs::metadata(path).map_err(|source| file_error(path, source))?;
                (of_pytorch(path, about.len())?, HashMap::new())
            }
        };
        let weights = Self { tensors };
        if let Some(expected) = metadata.get(CHECKSUM) {
            let got = weights.checksum();
            if *expected != got {
                return Err(WeightsError::Checksum {
                    path: path.into(),
                    expected: expected.clone(),
                    got,
                });
            }
        }
        Ok(weights)
    }

    /// Writes a new file, `.safetensors` or `.bpk`: all of it, or nothing.
    ///
    /// # Errors
    ///
    /// [`WeightsError`] if one is there already, or it cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), WeightsError> {
        self.put(path.as_ref(), false)
    }

    /// Writes a file, in the place of the one that may be there: it is whole, before or
    /// after, at any time.
    ///
    /// # Errors
    ///
    /// [`WeightsError`] if it cannot be written; what was there is left.
    pub fn replace(&self, path: impl AsRef<Path>) -> Result<(), WeightsError> {
        self.put(path.as_ref(), true)
    }

    fn put(&self, path: &Path, over: bool) -> Result<(), WeightsError> {
        let format = Format::of(path)?;
        if !over && path.symlink_metadata().is_ok() {
            return Err(WeightsError::Exists { path: path.into() });
        }
        let failed = |error: PackError| match error {
            PackError::AlreadyExists(_) => WeightsError::Exists { path: path.into() },
            other => file_error(path, std::io::Error::other(other.to_string())),
        };
        match format {
            Format::Pytorch => Err(WeightsError::Extension { path: path.into() }),
            Format::Burnpack => {
                let tensors = self.tensors.iter().map(|(key, held)| {
                    bridge::from_data(held.data.clone(), key.clone(), held.param_id)
                });
                Writer::new(tensors.collect())
                    .with_metadata(CHECKSUM, &self.checksum())
                    .auto_extension(false)
                    .overwrite(over)
                    .write_to_file(path)
                    .map_err(failed)
            }
            Format::Safetensors => {
                let views = self.tensors.iter();
                let views: Vec<_> = views
                    .map(|(key, held)| Ok((key, view(path, key, &held.data)?)))
                    .collect::<Result<_, WeightsError>>()?;
                let metadata = HashMap::from([(CHECKSUM.to_owned(), self.checksum())]);
                let (beside, reserved) = AtomicFile::create(path).map_err(failed)?;
                let rights = reserved.metadata().map(|it| it.permissions());
                drop(reserved);
                safetensors::serialize_to_file(views, Some(metadata), beside.path())
                    .map_err(|error| file_error(path, std::io::Error::other(error)))?;
                // The crate's files are for their owner alone; ours are for those who may read
                // the others beside them.
                rights
                    .and_then(|rights| std::fs::set_permissions(beside.path(), rights))
                    .map_err(|error| file_error(path, error))?;
                match over {
                    true => beside.commit().map_err(failed),
                    false => beside.commit_new().map_err(failed),
                }
            }
        }
    }

    /// Of every name, shape and number, in the order of the names.
    fn checksum(&self) -> String {
        let mut hasher = crc32fast::Hasher::new();
        for (key, held) in &self.tensors {
            hasher.update(key.as_bytes());
            hasher.update(format!("\0{:?}", held.data.dtype()).as_bytes());
            for size in held.data.shape().iter() {
                hasher.update(&(*size as u64).to_le_bytes());
            }
            hasher.update(held.data.as_bytes());
        }
        format!("{:08x}", hasher.finalize())
    }
}

pub(super) fn file_error(path: &Path, source: std::io::Error) -> WeightsError {
    WeightsError::File {
        path: path.into(),
        source,
    }
}

fn of_safetensors(path: &Path, bytes: &[u8]) -> Result<Contents, WeightsError> {
    let broken = |why: safetensors::SafeTensorError| Format::Safetensors.broken(path, why);
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(broken)?;
    let file = SafeTensors::deserialize(bytes).map_err(broken)?;
    let mut tensors = BTreeMap::new();
    for (key, view) in file.tensors() {
        let Some(dtype) = dtype_of(view.dtype()) else {
            let why = format!("key {key} holds {:?}, which Burn has not", view.dtype());
            return Err(Format::Safetensors.broken(path, why));
        };
        let declared = [(key.as_str(), view.shape(), dtype)];
        bounds::check(path, bytes.len() as u64, declared.into_iter())?;
        let bytes = Bytes::from_bytes_vec(view.data().to_vec());
        let data = TensorData::try_from_bytes(bytes, view.shape().to_vec(), dtype)
            .map_err(|error| Format::Safetensors.broken(path, error))?;
        tensors.insert(key.clone(), Held::new(key, data, None));
    }
    Ok((tensors, header.metadata().clone().unwrap_or_default()))
}

fn of_burnpack(path: &Path, bytes: Vec<u8>) -> Result<Contents, WeightsError> {
    let broken = |why: PackError| Format::Burnpack.broken(path, why);
    let file_len = bytes.len() as u64;
    let reader = Reader::from_bytes(Bytes::from_bytes_vec(bytes)).map_err(broken)?;
    let metadata = reader.metadata().clone().into_iter().collect();
    let found = reader.into_tensors().map_err(broken)?;
    let declared = found
        .iter()
        .map(|it| (it.name.as_str(), &it.shape[..], it.dtype));
    bounds::check(path, file_len, declared)?;
    let mut tensors = BTreeMap::new();
    for tensor in found {
        let (key, param_id) = (tensor.name.clone(), tensor.param_id);
        let data = bridge::into_data(tensor).map_err(broken)?;
        tensors.insert(key.clone(), Held::new(key, data, param_id));
    }
    Ok((tensors, metadata))
}

fn of_pytorch(path: &Path, file_len: u64) -> Result<BTreeMap<String, Held>, WeightsError> {
    bounds::check_archive(path, file_len)?;
    // Names stay as they are: what they mean is for the import to say.
    let mut store = PytorchStore::from_file(path).map_indices_contiguous(false);
    let found = (store.get_all_tensors()).map_err(|why| Format::Pytorch.broken(path, why))?;
    let declared = found.iter();
    let declared = declared.map(|(key, it)| (key.as_str(), &it.shape[..], it.dtype));
    bounds::check(path, file_len, declared)?;
    let mut tensors = BTreeMap::new();
    for (key, tensor) in found {
        let data = bridge::to_data(tensor).map_err(|why| Format::Pytorch.broken(path, why))?;
        tensors.insert(key.clone(), Held::new(key.clone(), data, None));
    }
    Ok(tensors)
}

const DTYPES: [(Dtype, DType); 8] = [
    (Dtype::F64, DType::F64),
    (Dtype::F32, DType::F32),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::I64, DType::I64),
    (Dtype::I32, DType::I32),
    (Dtype::U8, DType::U8),
    (Dtype::BOOL, DType::Bool(burn::tensor::BoolStore::Native)),
];

fn dtype_of(dtype: Dtype) -> Option<DType> {
    let found = DTYPES.iter().find(|(other, _)| *other == dtype);
    found.map(|(_, own)| *own)
}

/// A tensor as `safetensors` writes it.
fn view<'a>(path: &Path, key: &str, data: &'a TensorData) -> Result<TensorView<'a>, WeightsError> {
    let known = DTYPES.iter().find(|(_, own)| *own == data.dtype());
    let (dtype, _) = known.ok_or_else(|| WeightsError::Kind {
        key: key.to_owned(),
        expected: "numbers that safetensors has".to_owned(),
        got: format!("{:?}", data.dtype()),
    })?;
    TensorView::new(*dtype, data.shape().to_vec(), data.as_bytes())
        .map_err(|error| file_error(path, std::io::Error::other(error)))
}
