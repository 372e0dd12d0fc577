//! Golden values as Burn tensors.

use burn::tensor::{Bool, Device, Tensor, TensorData};
use zoo_oracle::{Golden, GoldenError, GoldenTensor, Numbers};

/// The numbers of a golden tensor as they are.
pub fn golden_data(golden: &GoldenTensor) -> TensorData {
    let shape = golden.shape.clone();
    match &golden.numbers {
        Numbers::F32(numbers) => TensorData::new(numbers.clone(), shape),
        Numbers::F64(numbers) => TensorData::new(numbers.clone(), shape),
        Numbers::I64(numbers) => TensorData::new(numbers.clone(), shape),
        Numbers::Bool(numbers) => TensorData::new(numbers.clone(), shape),
    }
}

/// The golden tensor of that name on a device, in the device's dtype.
///
/// # Errors
///
/// [`GoldenError::Missing`] if there is none.
pub fn golden_tensor<const D: usize>(
    golden: &Golden,
    name: &str,
    device: &Device,
) -> Result<Tensor<D>, GoldenError> {
    let data = golden_data(golden.tensor(name)?);
    Ok(Tensor::from_data(data, device))
}

/// The golden mask of that name on a device, if there is one.
pub fn golden_mask<const D: usize>(
    golden: &Golden,
    name: &str,
    device: &Device,
) -> Option<Tensor<D, Bool>> {
    let mask = golden.tensors.get(name)?;
    Some(Tensor::from_data(golden_data(mask), device))
}
