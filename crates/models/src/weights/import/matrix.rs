//! Transposing and splitting tensors of any dtype.

use burn::tensor::{Bytes, TensorData};

use super::super::{NamedTensor, WeightsError};

pub(super) fn transpose(tensor: NamedTensor) -> Result<NamedTensor, WeightsError> {
    let &[rows, columns] = &tensor.data.shape()[..] else {
        return Err(WeightsError::NotAMatrix {
            key: tensor.origin.clone(),
            got: tensor.data.shape().to_vec(),
        });
    };
    let size = tensor.data.dtype().size();
    let bytes = tensor.data.as_bytes();
    let mut transposed = Vec::with_capacity(bytes.len());
    // With no rows, the number of columns may be arbitrarily large.
    let columns_with_rows = if rows == 0 { 0 } else { columns };
    for column in 0..columns_with_rows {
        for row in 0..rows {
            let start = (row * columns + column) * size;
            transposed.extend_from_slice(&bytes[start..start + size]);
        }
    }
    let data = from_bytes(transposed, vec![columns, rows], &tensor.data);
    Ok(NamedTensor { data, ..tensor })
}

/// Splits a tensor along its first dimension into equal parts.
pub(super) fn split_rows(
    tensor: &NamedTensor,
    parts: usize,
) -> Result<Vec<TensorData>, WeightsError> {
    let shape = tensor.data.shape().to_vec();
    let rows = shape.first().copied().unwrap_or(0);
    if !rows.is_multiple_of(parts) || tensor.data.num_elements() == 0 {
        return Err(WeightsError::Split {
            key: tensor.origin.clone(),
            parts,
            got: shape,
        });
    }
    let bytes = tensor.data.as_bytes();
    let split = |part: &[u8]| {
        let mut shape = shape.clone();
        shape[0] = rows / parts;
        from_bytes(part.to_vec(), shape, &tensor.data)
    };
    Ok(bytes.chunks(bytes.len() / parts).map(split).collect())
}

/// Reshapes a tensor to a matrix with one row.
pub(super) fn into_row(tensor: NamedTensor) -> NamedTensor {
    let (bytes, len) = (tensor.data.as_bytes().to_vec(), tensor.data.num_elements());
    let data = from_bytes(bytes, vec![1, len], &tensor.data);
    NamedTensor { data, ..tensor }
}

fn from_bytes(bytes: Vec<u8>, shape: Vec<usize>, like: &TensorData) -> TensorData {
    TensorData::from_bytes(Bytes::from_bytes_vec(bytes), shape, like.dtype())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(values: Vec<f32>, shape: &[usize]) -> NamedTensor {
        NamedTensor::new("a.weight", TensorData::new(values, shape.to_vec()), None)
    }

    #[test]
    fn transpose_swaps_rows_and_columns() {
        let transposed = transpose(tensor(vec![1., 2., 3., 4., 5., 6.], &[2, 3]));
        let expected = TensorData::new(vec![1_f32, 4., 2., 5., 3., 6.], [3, 2]);
        assert_eq!(transposed.expect("a matrix").data, expected);
        let error = transpose(tensor(vec![1.], &[1])).expect_err("not a matrix");
        assert_eq!(error.to_string(), "key a.weight must be a matrix, got [1]");
        // Returns immediately for any number of columns.
        let empty = transpose(tensor(vec![], &[0, 1 << 62])).expect("a matrix");
        assert_eq!(empty.data.shape().to_vec(), [1 << 62, 0]);
    }

    #[test]
    fn split_rows_makes_equal_parts() {
        let tensor = tensor(vec![1., 2., 3., 4., 5., 6.], &[3, 2]);
        let parts = split_rows(&tensor, 3).expect("three rows");
        assert_eq!(parts[1], TensorData::new(vec![3_f32, 4.], [1, 2]));
        let error = split_rows(&tensor, 2).expect_err("three rows");
        let message = "key a.weight must hold 2 stacked matrices, got shape [3, 2]";
        assert_eq!(error.to_string(), message);
    }
}
