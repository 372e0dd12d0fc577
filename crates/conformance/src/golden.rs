//! Golden values: tensors computed by another program, read from a safetensors file.

use std::collections::BTreeMap;

use burn::tensor::kind::Basic;
use burn::tensor::{Bytes, DType, Device, Tensor, TensorData};
use safetensors::{Dtype, SafeTensorError, SafeTensors};

/// The tensors of a golden file.
#[derive(Debug, Clone)]
pub struct Golden {
    /// Metadata written by its script, such as versions and the seed.
    pub metadata: BTreeMap<String, String>,
    /// Tensors by name.
    pub tensors: BTreeMap<String, TensorData>,
}

impl Golden {
    /// Parses a safetensors file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SafeTensorError> {
        let (_, header) = SafeTensors::read_metadata(bytes)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let file = SafeTensors::deserialize(bytes)?;
        let tensors = file.iter().map(|(name, view)| {
            let dtype = match view.dtype() {
                Dtype::F32 => DType::F32,
                Dtype::F64 => DType::F64,
                Dtype::I64 => DType::I64,
                Dtype::BOOL => DType::Bool(burn::tensor::BoolStore::Native),
                other => panic!("{name} has unsupported dtype {other:?}"),
            };
            let bytes = Bytes::from_bytes_vec(view.data().to_vec());
            let data = TensorData::try_from_bytes(bytes, view.shape().to_vec(), dtype);
            (name.to_owned(), data.expect("safetensors checked the size"))
        });
        Ok(Self {
            tensors: tensors.collect(),
            metadata: metadata.into_iter().collect(),
        })
    }

    /// The tensors whose names begin with `prefix`, which is removed.
    pub fn strip_prefix(&self, prefix: &str) -> Self {
        let tensors = self.tensors.iter().filter_map(|(name, data)| {
            let rest = name.strip_prefix(prefix)?;
            Some((rest.to_owned(), data.clone()))
        });
        Self {
            metadata: self.metadata.clone(),
            tensors: tensors.collect(),
        }
    }

    /// The values of a tensor.
    pub fn values(&self, name: &str) -> Vec<f64> {
        let data = self.tensors.get(name);
        let data = data.unwrap_or_else(|| panic!("no golden tensor {name}"));
        data.iter::<f64>().collect()
    }

    /// A tensor or mask on a device, in the device's dtype, if there is one with this name.
    pub fn tensor<const D: usize, K: Basic>(
        &self,
        name: &str,
        device: &Device,
    ) -> Option<Tensor<D, K>> {
        let data = self.tensors.get(name)?;
        Some(Tensor::from_data(data.clone(), device))
    }
}
