//! Tensors turned and cut, whatever numbers they hold.

use burn::tensor::{Bytes, TensorData};

use super::super::{Held, WeightsError};

/// A matrix with rows for columns.
pub(super) fn turned(held: Held) -> Result<Held, WeightsError> {
    let &[rows, columns] = &held.data.shape()[..] else {
        return Err(WeightsError::NoMatrix {
            key: held.origin.clone(),
            got: held.data.shape().to_vec(),
        });
    };
    let size = held.data.dtype().size();
    let bytes = held.data.as_bytes();
    let mut turned = Vec::with_capacity(bytes.len());
    // Beside no rows there may be any number of columns.
    let columns_with_rows = if rows == 0 { 0 } else { columns };
    for column in 0..columns_with_rows {
        for row in 0..rows {
            let at = (row * columns + column) * size;
            turned.extend_from_slice(&bytes[at..at + size]);
        }
    }
    let data = of_bytes(turned, vec![columns, rows], &held.data);
    Ok(Held { data, ..held })
}

/// A tensor in as many parts, each with as many of its rows.
pub(super) fn rows_in_parts(held: &Held, parts: usize) -> Result<Vec<TensorData>, WeightsError> {
    let shape = held.data.shape().to_vec();
    let rows = shape.first().copied().unwrap_or(0);
    if !rows.is_multiple_of(parts) || held.data.num_elements() == 0 {
        return Err(WeightsError::Parts {
            key: held.origin.clone(),
            parts,
            got: shape,
        });
    }
    let bytes = held.data.as_bytes();
    let own = |part: &[u8]| {
        let mut shape = shape.clone();
        shape[0] = rows / parts;
        of_bytes(part.to_vec(), shape, &held.data)
    };
    Ok(bytes.chunks(bytes.len() / parts).map(own).collect())
}

/// A tensor as a matrix of one row.
pub(super) fn one_row(held: Held) -> Held {
    let (bytes, numbers) = (held.data.as_bytes().to_vec(), held.data.num_elements());
    let data = of_bytes(bytes, vec![1, numbers], &held.data);
    Held { data, ..held }
}

fn of_bytes(bytes: Vec<u8>, shape: Vec<usize>, like: &TensorData) -> TensorData {
    TensorData::from_bytes(Bytes::from_bytes_vec(bytes), shape, like.dtype())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(numbers: Vec<f32>, shape: &[usize]) -> Held {
        Held::new("a.weight", TensorData::new(numbers, shape.to_vec()), None)
    }

    #[test]
    fn rows_become_columns() {
        let turned_over = turned(held(vec![1., 2., 3., 4., 5., 6.], &[2, 3]));
        let expected = TensorData::new(vec![1_f32, 4., 2., 5., 3., 6.], [3, 2]);
        assert_eq!(turned_over.expect("a matrix").data, expected);
        let error = turned(held(vec![1.], &[1])).expect_err("no matrix");
        assert_eq!(error.to_string(), "key a.weight must be a matrix, got [1]");
        // At once, however many columns there are of no rows.
        let empty = turned(held(vec![], &[0, 1 << 62])).expect("a matrix");
        assert_eq!(empty.data.shape().to_vec(), [1 << 62, 0]);
    }

    #[test]
    fn parts_have_as_many_rows() {
        let held = held(vec![1., 2., 3., 4., 5., 6.], &[3, 2]);
        let parts = rows_in_parts(&held, 3).expect("three rows");
        assert_eq!(parts[1], TensorData::new(vec![3_f32, 4.], [1, 2]));
        let error = rows_in_parts(&held, 2).expect_err("three rows");
        let message = "key a.weight is 2 matrices in one, and cannot be [3, 2]";
        assert_eq!(error.to_string(), message);
    }
}
