//! Weight files: `safetensors`, Burn's `.bpk`, and PyTorch's.
//!
//! A file is read completely before it is used, and written atomically: to a temporary file that is
//! renamed. Written files carry a checksum of their tensors.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use burn::store::burn_pack::{
    AtomicFile, Error as PackError, Reader, Tensor as PackTensor, Writer,
};
use burn::store::{ModuleStore, PytorchStore, bridge};
use burn::tensor::{Bytes, DType, TensorData};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::{NamedTensor, Weights, bounds};
use crate::ModelError;

/// Metadata key of the checksum.
const CHECKSUM: &str = "zoo.checksum";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Safetensors,
    Burnpack,
    Pytorch,
}

impl Format {
    fn from_path(path: &Path) -> Result<Self, ModelError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("safetensors") => Ok(Self::Safetensors),
            Some("bpk") => Ok(Self::Burnpack),
            Some("pt" | "pth" | "bin") => Ok(Self::Pytorch),
            _ => Err(ModelError::Extension(path.into())),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Burnpack => "Burn",
            Self::Pytorch => "PyTorch",
        }
    }

    fn invalid(self, path: &Path, reason: impl std::fmt::Display) -> ModelError {
        ModelError::InvalidFile {
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
    /// [`ModelError`] if the file is missing, invalid, truncated or corrupted.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        let format = Format::from_path(path)?;
        let bytes = || std::fs::read(path).map_err(ModelError::file(path));
        let (tensors, metadata) = match format {
            Format::Safetensors => read_safetensors(path, &bytes()?)?,
            Format::Burnpack => read_burnpack(path, bytes()?)?,
            Format::Pytorch => (read_pytorch(path)?, HashMap::new()),
        };
        let weights = Self { tensors };
        if let Some(expected) = metadata.get(CHECKSUM) {
            let got = weights.checksum();
            if *expected != got {
                return Err(ModelError::Checksum {
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
    /// [`ModelError`] if the file already exists or cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), ModelError> {
        self.save(path.as_ref(), false)
    }

    /// Writes a file, atomically replacing an existing one.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if the file cannot be written; an existing file is unchanged.
    pub fn replace(&self, path: impl AsRef<Path>) -> Result<(), ModelError> {
        self.save(path.as_ref(), true)
    }

    fn save(&self, path: &Path, overwrite: bool) -> Result<(), ModelError> {
        let format = Format::from_path(path)?;
        if !overwrite && path.symlink_metadata().is_ok() {
            return Err(ModelError::Exists(path.into()));
        }
        let other_error = |error: String| ModelError::file(path)(std::io::Error::other(error));
        let pack_error = |error: PackError| match error {
            PackError::AlreadyExists(_) => ModelError::Exists(path.into()),
            other => other_error(other.to_string()),
        };
        match format {
            Format::Pytorch => Err(ModelError::Extension(path.into())),
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
                    .collect::<Result<_, ModelError>>()?;
                let metadata = HashMap::from([(CHECKSUM.to_owned(), self.checksum())]);
                let (temporary, file) = AtomicFile::create(path).map_err(pack_error)?;
                let permissions = file.metadata().map(|it| it.permissions());
                drop(file);
                safetensors::serialize_to_file(views, Some(metadata), temporary.path())
                    .map_err(|error| other_error(error.to_string()))?;
                // safetensors makes files readable by their owner only; restore the defaults.
                permissions
                    .and_then(|it| std::fs::set_permissions(temporary.path(), it))
                    .map_err(ModelError::file(path))?;
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

fn read_safetensors(path: &Path, bytes: &[u8]) -> Result<Contents, ModelError> {
    let invalid = |error: safetensors::SafeTensorError| Format::Safetensors.invalid(path, error);
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(invalid)?;
    let file = SafeTensors::deserialize(bytes).map_err(invalid)?;
    let mut found = vec![];
    for (key, view) in file.tensors() {
        let Some(dtype) = to_burn(view.dtype()) else {
            let reason = format!("tensor {key}: Burn does not support {:?}", view.dtype());
            return Err(Format::Safetensors.invalid(path, reason));
        };
        let shape = view.shape().to_vec();
        let data = Bytes::from_bytes_vec(view.data().to_vec());
        found.push(PackTensor::new(key, dtype, shape, None, data));
    }
    let tensors = load(path, Format::Safetensors, bytes.len() as u64, found)?;
    Ok((tensors, header.metadata().clone().unwrap_or_default()))
}

fn read_burnpack(path: &Path, bytes: Vec<u8>) -> Result<Contents, ModelError> {
    let invalid = |error: PackError| Format::Burnpack.invalid(path, error);
    let file_len = bytes.len() as u64;
    let reader = Reader::from_bytes(Bytes::from_bytes_vec(bytes)).map_err(invalid)?;
    let metadata = reader.metadata().clone().into_iter().collect();
    let found = reader.into_tensors().map_err(invalid)?;
    let tensors = load(path, Format::Burnpack, file_len, found)?;
    Ok((tensors, metadata))
}

fn read_pytorch(path: &Path) -> Result<BTreeMap<String, NamedTensor>, ModelError> {
    let file_len = std::fs::metadata(path)
        .map_err(ModelError::file(path))?
        .len();
    bounds::check_archive(path, file_len)?;
    // Keys stay unchanged; the import maps them.
    let mut store = PytorchStore::from_file(path).map_indices_contiguous(false);
    let found = (store.get_all_tensors()).map_err(|error| Format::Pytorch.invalid(path, error))?;
    let found = found.values().cloned().collect(); // not loaded yet
    load(path, Format::Pytorch, file_len, found)
}

/// Loads the tensors of a file, if their declared sizes are possible.
fn load(
    path: &Path,
    format: Format,
    file_len: u64,
    found: Vec<PackTensor>,
) -> Result<BTreeMap<String, NamedTensor>, ModelError> {
    let declared = found
        .iter()
        .map(|it| (it.name.as_str(), &it.shape[..], it.dtype));
    bounds::check(path, file_len, declared)?;
    let load = |tensor| {
        let tensor = NamedTensor::load(tensor).map_err(|error| format.invalid(path, error))?;
        Ok((tensor.origin.clone(), tensor))
    };
    found.into_iter().map(load).collect()
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

fn view<'a>(path: &Path, key: &str, data: &'a TensorData) -> Result<TensorView<'a>, ModelError> {
    let found = DTYPES.iter().find(|(_, burn)| *burn == data.dtype());
    let (dtype, _) = found.ok_or_else(|| ModelError::Tensor {
        key: key.to_owned(),
        expected: "a dtype that safetensors supports".to_owned(),
        got: format!("{:?}", data.dtype()),
        help: "write a .bpk file",
    })?;
    TensorView::new(*dtype, data.shape().to_vec(), data.as_bytes())
        .map_err(|error| ModelError::file(path)(std::io::Error::other(error)))
}
