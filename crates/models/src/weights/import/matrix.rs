//! Transposing and splitting tensors of any dtype.

use burn::tensor::{Bytes, TensorData};

use crate::ModelError;
use crate::weights::NamedTensor;

pub(in crate::weights) fn transpose(tensor: NamedTensor) -> Result<NamedTensor, ModelError> {
    let &[rows, columns] = &tensor.data.shape()[..] else {
        return Err(wrong_layout(&tensor, "a matrix".to_owned()));
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
    Ok(with_bytes(&tensor, transposed, vec![columns, rows]))
}

/// Splits a tensor along its first dimension into equal parts.
pub(super) fn split_rows(
    tensor: &NamedTensor,
    parts: usize,
) -> Result<Vec<NamedTensor>, ModelError> {
    let shape = tensor.data.shape().to_vec();
    let rows = shape.first().copied().unwrap_or(0);
    if !rows.is_multiple_of(parts) || tensor.data.num_elements() == 0 {
        return Err(wrong_layout(tensor, format!("{parts} stacked matrices")));
    }
    let bytes = tensor.data.as_bytes();
    let split = |part: &[u8]| {
        let mut shape = shape.clone();
        shape[0] = rows / parts;
        with_bytes(tensor, part.to_vec(), shape)
    };
    Ok(bytes.chunks(bytes.len() / parts).map(split).collect())
}

/// Splits a tensor along its last dimension into equal parts.
pub(in crate::weights) fn split_columns(
    tensor: &NamedTensor,
    parts: usize,
) -> Result<Vec<NamedTensor>, ModelError> {
    let shape = tensor.data.shape().to_vec();
    let columns = shape.last().copied().unwrap_or(0);
    if !columns.is_multiple_of(parts) || tensor.data.num_elements() == 0 {
        return Err(wrong_layout(
            tensor,
            format!("{parts} matrices side by side"),
        ));
    }
    let row = columns * tensor.data.dtype().size();
    let width = row / parts;
    let bytes = tensor.data.as_bytes();
    let split = |part: usize| {
        let rows = bytes.chunks(row);
        let bytes = rows.flat_map(|row| &row[part * width..(part + 1) * width]);
        let last = shape.len() - 1;
        let shape = [&shape[..last], &[columns / parts]].concat();
        with_bytes(tensor, bytes.copied().collect(), shape)
    };
    Ok((0..parts).map(split).collect())
}

/// Reshapes a tensor to a matrix with one row.
pub(super) fn into_row(tensor: NamedTensor) -> NamedTensor {
    let bytes = tensor.data.as_bytes().to_vec();
    with_bytes(&tensor, bytes, vec![1, tensor.data.num_elements()])
}

fn wrong_layout(tensor: &NamedTensor, expected: String) -> ModelError {
    ModelError::Tensor {
        key: tensor.origin.clone(),
        expected,
        got: format!("shape {:?}", tensor.data.shape().to_vec()),
        help: "use the import function of the architecture in the file",
    }
}

/// A tensor with other elements of the same dtype.
fn with_bytes(tensor: &NamedTensor, bytes: Vec<u8>, shape: Vec<usize>) -> NamedTensor {
    let bytes = Bytes::from_bytes_vec(bytes);
    NamedTensor {
        origin: tensor.origin.clone(),
        data: TensorData::from_bytes(bytes, shape, tensor.data.dtype()),
        param_id: tensor.param_id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(values: Vec<f32>, shape: &[usize]) -> NamedTensor {
        NamedTensor {
            origin: "a.weight".to_owned(),
            data: TensorData::new(values, shape.to_vec()),
            param_id: None,
        }
    }

    #[test]
    fn transpose_swaps_rows_and_columns() {
        let transposed = transpose(tensor(vec![1., 2., 3., 4., 5., 6.], &[2, 3]));
        let expected = TensorData::new(vec![1_f32, 4., 2., 5., 3., 6.], [3, 2]);
        assert_eq!(transposed.expect("a matrix").data, expected);
        let error = transpose(tensor(vec![1.], &[1])).expect_err("not a matrix");
        let message = "tensor a.weight: expected a matrix, got shape [1]\n  help: use the import";
        assert!(error.to_string().starts_with(message), "{error}");
        // Returns immediately for any number of columns.
        let empty = transpose(tensor(vec![], &[0, 1 << 62])).expect("a matrix");
        assert_eq!(empty.data.shape().to_vec(), [1 << 62, 0]);
    }

    #[test]
    fn split_columns_makes_equal_parts() {
        let tensor = tensor(vec![1., 2., 3., 4., 5., 6., 7., 8.], &[2, 4]);
        let parts = split_columns(&tensor, 2).expect("four columns");
        let expected = TensorData::new(vec![3_f32, 4., 7., 8.], [2, 2]);
        assert_eq!(parts[1].data, expected);
        let error = split_columns(&tensor, 3).expect_err("four columns");
        let message = "tensor a.weight: expected 3 matrices side by side, got shape [2, 4]";
        assert!(error.to_string().starts_with(message), "{error}");
    }

    #[test]
    fn split_rows_makes_equal_parts() {
        let tensor = tensor(vec![1., 2., 3., 4., 5., 6.], &[3, 2]);
        let parts = split_rows(&tensor, 3).expect("three rows");
        assert_eq!(parts[1].data, TensorData::new(vec![3_f32, 4.], [1, 2]));
        let error = split_rows(&tensor, 2).expect_err("three rows");
        let message = "tensor a.weight: expected 2 stacked matrices, got shape [3, 2]\n  help: ";
        assert!(error.to_string().starts_with(message), "{error}");
    }
}
