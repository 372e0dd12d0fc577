//! Validation of the sizes that a file declares, before anything is allocated.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use burn::tensor::DType;
use zip::ZipArchive;

use crate::ModelError;

/// Maximum ratio of the bytes of all tensors to the bytes of the file. In PyTorch files, several
/// keys may share one storage, for example tied weights.
const MAX_SHARING: u128 = 16;

/// Checks that a file of `file_len` bytes can hold the tensors that it declares.
///
/// A tensor larger than its file is either truncated or an expanded view: with a stride of 0, four
/// bytes become a tensor of any size. A dimension larger than the file is only possible beside a
/// dimension of 0, and a loop over it would not end.
pub(super) fn check<'a>(
    path: &Path,
    file_len: u64,
    tensors: impl Iterator<Item = (&'a str, &'a [usize], DType)>,
) -> Result<(), ModelError> {
    let file_len = u128::from(file_len);
    let mut total: u128 = 0;
    for (key, shape, dtype) in tensors {
        let too_large = |declared: String| ModelError::TooLarge {
            path: path.into(),
            declared,
            file_len,
        };
        let bytes = num_bytes(shape, dtype);
        let exceeds_file = |size: &usize| *size as u128 > file_len;
        if bytes.is_none_or(|bytes| bytes > file_len) || shape.iter().any(exceeds_file) {
            return Err(too_large(format!("tensor {key} declares shape {shape:?}")));
        }
        total += bytes.unwrap_or_default();
        if total > MAX_SHARING * file_len {
            return Err(too_large(format!(
                "the tensors up to {key} declare {total} bytes"
            )));
        }
    }
    Ok(())
}

/// Number of bytes of a tensor, unless the product of its dimensions overflows in any order: a 0
/// at the end does not undo an earlier overflow. Quantized elements take at least one bit.
fn num_bytes(shape: &[usize], dtype: DType) -> Option<u128> {
    let sizes = shape.iter().map(|size| (*size).max(1));
    let elements = sizes
        .into_iter()
        .try_fold(1_usize, usize::checked_mul)
        .filter(|elements| *elements <= isize::MAX as usize / 8)? as u128;
    match dtype {
        _ if shape.contains(&0) => Some(0),
        DType::QFloat(_) => Some(elements / 8),
        other => Some(elements * other.size() as u128),
    }
}

/// Checks that no entry of a zip archive is larger than the file. PyTorch does not compress its
/// archives, and a compressed entry can expand a thousandfold. Other files are accepted.
pub(super) fn check_archive(path: &Path, file_len: u64) -> Result<(), ModelError> {
    let file = File::open(path).map_err(ModelError::file(path))?;
    let Ok(mut archive) = ZipArchive::new(BufReader::new(file)) else {
        return Ok(());
    };
    for index in 0..archive.len() {
        // Unreadable entries are reported by the reader of the format.
        let Ok(entry) = archive.by_index_raw(index) else {
            continue;
        };
        if entry.size() > file_len {
            return Err(ModelError::TooLarge {
                path: path.into(),
                declared: format!(
                    "entry {index} of the archive declares {} bytes",
                    entry.size()
                ),
                file_len: u128::from(file_len),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the tensors of a file of 40 bytes.
    fn check_all(tensors: &[(&str, &[usize])]) -> Result<(), String> {
        let tensors = tensors
            .iter()
            .map(|(key, shape)| (*key, *shape, DType::F32));
        check(Path::new("a.pt"), 40, tensors).map_err(|error| error.to_string())
    }

    #[test]
    fn tensors_larger_than_the_file_are_rejected() {
        for shape in [vec![10], vec![], vec![0], vec![0, 40], vec![2, 5]] {
            assert_eq!(check_all(&[("a", &shape)]), Ok(()), "{shape:?}");
        }
        for shape in [
            vec![11],
            vec![0, 1 << 62],
            vec![1 << 62, 0],
            vec![1 << 32, 1 << 32],
            vec![usize::MAX; 8],
            vec![usize::MAX, 0, usize::MAX],
            vec![40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 0],
        ] {
            let error = check_all(&[("a.b", &shape)]).expect_err("too large");
            assert!(
                error.starts_with(&format!("a.pt: tensor a.b declares shape {shape:?}")),
                "{error}"
            );
            assert!(error.contains("the file has 40 bytes"), "{error}");
        }
    }

    #[test]
    fn sharing_of_storage_is_limited() {
        let tied = [("a", [10_usize].as_slice()); 16];
        assert_eq!(check_all(&tied), Ok(()));
        let too_many = [("a", [10_usize].as_slice()); 17];
        let error = check_all(&too_many).expect_err("more than 16 times the file");
        assert!(error.contains("declare 680 bytes"), "{error}");
    }
}
