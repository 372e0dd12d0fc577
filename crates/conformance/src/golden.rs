//! Golden values: tensors that another program computed, read from the safetensors file it wrote.

use std::collections::BTreeMap;

use burn::tensor::{Bool, Bytes, DType, Device, Tensor, TensorData};
use safetensors::{Dtype, SafeTensorError, SafeTensors};

/// The tensors of a file by their names.
#[derive(Debug, Clone)]
pub struct Golden {
    /// What its script wrote about it: the versions and the seed, among others.
    pub metadata: BTreeMap<String, String>,
    /// The tensors.
    pub tensors: BTreeMap<String, TensorData>,
}

impl Golden {
    /// Reads what a file holds.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SafeTensorError> {
        let (_, header) = SafeTensors::read_metadata(bytes)?;
        let file = SafeTensors::deserialize(bytes)?;
        let tensors = file.iter().map(|(name, view)| {
            let dtype = match view.dtype() {
                Dtype::F32 => DType::F32,
                Dtype::F64 => DType::F64,
                Dtype::I64 => DType::I64,
                Dtype::BOOL => DType::Bool(burn::tensor::BoolStore::Native),
                other => panic!("{name} holds {other:?}"),
            };
            let bytes = Bytes::from_bytes_vec(view.data().to_vec());
            let data = TensorData::try_from_bytes(bytes, view.shape().to_vec(), dtype);
            (name.to_owned(), data.expect("safetensors checked the size"))
        });
        Ok(Self {
            tensors: tensors.collect(),
            metadata: header
                .metadata()
                .iter()
                .flatten()
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        })
    }

    /// Those whose names begin with `prefix`, without it: a case, or a layer of a model.
    pub fn under(&self, prefix: &str) -> Self {
        let tensors = self.tensors.iter().filter_map(|(name, data)| {
            let rest = name.strip_prefix(prefix)?;
            Some((rest.to_owned(), data.clone()))
        });
        Self {
            metadata: self.metadata.clone(),
            tensors: tensors.collect(),
        }
    }

    /// The numbers of the tensor of that name.
    pub fn numbers(&self, name: &str) -> Vec<f64> {
        let data = self.tensors.get(name);
        let data = data.unwrap_or_else(|| panic!("no golden tensor {name}"));
        data.iter::<f64>().collect()
    }

    /// The tensor of that name on a device, in the device's dtype, if there is one.
    pub fn tensor<const D: usize>(&self, name: &str, device: &Device) -> Option<Tensor<D>> {
        let data = self.tensors.get(name)?;
        Some(Tensor::from_data(data.clone(), device))
    }

    /// The mask of that name on a device, if there is one.
    pub fn mask<const D: usize>(&self, name: &str, device: &Device) -> Option<Tensor<D, Bool>> {
        let data = self.tensors.get(name)?;
        Some(Tensor::from_data(data.clone(), device))
    }
}
