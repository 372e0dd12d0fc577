//! Weight files: `safetensors`, Burn's `.bpk`, and PyTorch's.
//!
//! A file is read completely before it is used, and written atomically: to a temporary file that is
//! renamed. Written files carry a checksum of their tensors.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use burn::store::burn_pack::{AtomicFile, Error as PackError, Reader, Writer};
use burn::store::{ModuleStore, PytorchStore, bridge};
use burn::tensor::{Bytes, DType, TensorData};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::{NamedTensor, Weights, WeightsError, bounds};

/// Metadata key of the checksum.
const CHECKSUM: &str = "zoo.checksum";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Safetensors,
    Burnpack,
    Pytorch,
}

impl Format {
    fn from_path(path: &Path) -> Result<Self, WeightsError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("safetensors") => Ok(Self::Safetensors),
            Some("bpk") => Ok(Self::Burnpack),
            Some("pt" | "pth" | "bin") => Ok(Self::Pytorch),
            _ => Err(WeightsError::Extension { path: path.into() }),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Burnpack => "Burn",
            Self::Pytorch => "PyTorch",
        }
    }

    fn invalid(self, path: &Path, reason: impl std::fmt::Display) -> WeightsError {
        WeightsError::InvalidFile {
            path: path.into(),
            format: self.name(),
            reason: reason.to_string(),
        }
    }
}

/// Tensors and metadata of a file.
type Contents = (BTreeMap<String, NamedTensor>, HashMap<String, String>);

impl Weights {
    /// Reads a file: `.safetensors`, `.bpk`, or PyTorch's `.pt`, `.pth` or `.bin`.
    ///
    /// # Errors
    ///
    /// [`WeightsError`] if the file is missing, invalid, truncated or corrupted.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, WeightsError> {
        let path = path.as_ref();
        let format = Format::from_path(path)?;
        let bytes = || std::fs::read(path).map_err(|source| file_error(path, source));
        let (tensors, metadata) = match format {
            Format::Safetensors => read_safetensors(path, &bytes()?)?,
            Format::Burnpack => read_burnpack(path, bytes()?)?,
            Format::Pytorch => {
                // Checked first for a clear error message.
                let metadata =
                    std::fs::metadata(path).map_err(|source| file_error(path, source))?;
                (read_pytorch(path, metadata.len())?, HashMap::new())
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

    /// Writes a new file, `.safetensors` or `.bpk`, atomically.
    ///
    /// # Errors
    ///
    /// [`WeightsError`] if the file already exists or cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), WeightsError> {
        self.save(path.as_ref(), false)
    }

    /// Writes a file, atomically replacing an existing one.
    ///
    /// # Errors
    ///
    /// [`WeightsError`] if the file cannot be written; an existing file is unchanged.
    pub fn replace(&self, path: impl AsRef<Path>) -> Result<(), WeightsError> {
        self.save(path.as_ref(), true)
    }

    fn save(&self, path: &Path, overwrite: bool) -> Result<(), WeightsError> {
        let format = Format::from_path(path)?;
        if !overwrite && path.symlink_metadata().is_ok() {
            return Err(WeightsError::Exists { path: path.into() });
        }
        let pack_error = |error: PackError| match error {
            PackError::AlreadyExists(_) => WeightsError::Exists { path: path.into() },
            other => file_error(path, std::io::Error::other(other.to_string())),
        };
        match format {
            Format::Pytorch => Err(WeightsError::Extension { path: path.into() }),
            Format::Burnpack => {
                let tensors = self.tensors.iter().map(|(key, tensor)| {
                    bridge::from_data(tensor.data.clone(), key.clone(), tensor.param_id)
                });
                Writer::new(tensors.collect())
                    .with_metadata(CHECKSUM, &self.checksum())
                    .auto_extension(false)
                    .overwrite(overwrite)
                    .write_to_file(path)
                    .map_err(pack_error)
            }
            Format::Safetensors => {
                let views = self.tensors.iter();
                let views: Vec<_> = views
                    .map(|(key, tensor)| Ok((key, view(path, key, &tensor.data)?)))
                    .collect::<Result<_, WeightsError>>()?;
                let metadata = HashMap::from([(CHECKSUM.to_owned(), self.checksum())]);
                let (temporary, file) = AtomicFile::create(path).map_err(pack_error)?;
                let permissions = file.metadata().map(|it| it.permissions());
                drop(file);
                safetensors::serialize_to_file(views, Some(metadata), temporary.path())
                    .map_err(|error| file_error(path, std::io::Error::other(error)))?;
                // safetensors makes files readable by their owner only; restore the defaults.
                permissions
                    .and_then(|it| std::fs::set_permissions(temporary.path(), it))
                    .map_err(|error| file_error(path, error))?;
                let committed = if overwrite {
                    temporary.commit()
                } else {
                    temporary.commit_new()
                };
                committed.map_err(pack_error)
            }
        }
    }

    /// Checksum of all keys, dtypes, shapes and elements, in the order of the keys.
    fn checksum(&self) -> String {
        let mut hasher = crc32fast::Hasher::new();
        for (key, tensor) in &self.tensors {
            hasher.update(key.as_bytes());
            hasher.update(format!("\0{:?}", tensor.data.dtype()).as_bytes());
            for size in tensor.data.shape().iter() {
                hasher.update(&(*size as u64).to_le_bytes());
            }
            hasher.update(tensor.data.as_bytes());
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

fn read_safetensors(path: &Path, bytes: &[u8]) -> Result<Contents, WeightsError> {
    let invalid = |error: safetensors::SafeTensorError| Format::Safetensors.invalid(path, error);
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(invalid)?;
    let file = SafeTensors::deserialize(bytes).map_err(invalid)?;
    let mut tensors = BTreeMap::new();
    for (key, view) in file.tensors() {
        let Some(dtype) = to_burn(view.dtype()) else {
            let reason = format!(
                "key {key} has dtype {:?}, unsupported by Burn",
                view.dtype()
            );
            return Err(Format::Safetensors.invalid(path, reason));
        };
        let declared = [(key.as_str(), view.shape(), dtype)];
        bounds::check(path, bytes.len() as u64, declared.into_iter())?;
        let bytes = Bytes::from_bytes_vec(view.data().to_vec());
        let data = TensorData::try_from_bytes(bytes, view.shape().to_vec(), dtype)
            .map_err(|error| Format::Safetensors.invalid(path, error))?;
        tensors.insert(key.clone(), NamedTensor::new(key, data, None));
    }
    Ok((tensors, header.metadata().clone().unwrap_or_default()))
}

fn read_burnpack(path: &Path, bytes: Vec<u8>) -> Result<Contents, WeightsError> {
    let invalid = |error: PackError| Format::Burnpack.invalid(path, error);
    let file_len = bytes.len() as u64;
    let reader = Reader::from_bytes(Bytes::from_bytes_vec(bytes)).map_err(invalid)?;
    let metadata = reader.metadata().clone().into_iter().collect();
    let found = reader.into_tensors().map_err(invalid)?;
    let declared = found
        .iter()
        .map(|it| (it.name.as_str(), &it.shape[..], it.dtype));
    bounds::check(path, file_len, declared)?;
    let mut tensors = BTreeMap::new();
    for tensor in found {
        let (key, param_id) = (tensor.name.clone(), tensor.param_id);
        let data = bridge::into_data(tensor).map_err(invalid)?;
        tensors.insert(key.clone(), NamedTensor::new(key, data, param_id));
    }
    Ok((tensors, metadata))
}

fn read_pytorch(path: &Path, file_len: u64) -> Result<BTreeMap<String, NamedTensor>, WeightsError> {
    bounds::check_archive(path, file_len)?;
    // Keys stay unchanged; the import maps them.
    let mut store = PytorchStore::from_file(path).map_indices_contiguous(false);
    let found = (store.get_all_tensors()).map_err(|error| Format::Pytorch.invalid(path, error))?;
    let declared = found.iter();
    let declared = declared.map(|(key, it)| (key.as_str(), &it.shape[..], it.dtype));
    bounds::check(path, file_len, declared)?;
    let mut tensors = BTreeMap::new();
    for (key, tensor) in found {
        let data = bridge::to_data(tensor).map_err(|error| Format::Pytorch.invalid(path, error))?;
        tensors.insert(key.clone(), NamedTensor::new(key.clone(), data, None));
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

fn to_burn(dtype: Dtype) -> Option<DType> {
    let found = DTYPES.iter().find(|(other, _)| *other == dtype);
    found.map(|(_, burn)| *burn)
}

fn view<'a>(path: &Path, key: &str, data: &'a TensorData) -> Result<TensorView<'a>, WeightsError> {
    let found = DTYPES.iter().find(|(_, burn)| *burn == data.dtype());
    let (dtype, _) = found.ok_or_else(|| WeightsError::Dtype {
        key: key.to_owned(),
        expected: "a dtype of safetensors".to_owned(),
        got: format!("{:?}", data.dtype()),
    })?;
    TensorView::new(*dtype, data.shape().to_vec(), data.as_bytes())
        .map_err(|error| file_error(path, std::io::Error::other(error)))
}
