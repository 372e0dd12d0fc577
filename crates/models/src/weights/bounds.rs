//! The sizes that a file declares, compared with the bytes it has before anything is allocated.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use burn::tensor::DType;
use zip::ZipArchive;

use super::WeightsError;

/// How many times the bytes of their file all tensors together may take. Several names may share
/// one storage, as tied weights do in what PyTorch saves.
const SHARED: u128 = 16;

/// Whether a file of so many bytes can hold the tensors that it declares.
///
/// A tensor larger than its file is either not there or a view that repeats what is there: a
/// stride of 0 turns four bytes into any number of them. A dimension larger than the file is only
/// possible beside one of 0, and no loop over it would end.
pub(super) fn check<'a>(
    path: &Path,
    file_len: u64,
    tensors: impl Iterator<Item = (&'a str, &'a [usize], DType)>,
) -> Result<(), WeightsError> {
    let file_len = u128::from(file_len);
    let mut total: u128 = 0;
    for (key, shape, dtype) in tensors {
        let too_large = |what: String| WeightsError::TooLarge {
            path: path.into(),
            what,
            file_len,
        };
        let bytes = bytes_of(shape, dtype);
        let is_long = |size: &usize| *size as u128 > file_len;
        if bytes.is_none_or(|bytes| bytes > file_len) || shape.iter().any(is_long) {
            return Err(too_large(format!("key {key} declares {shape:?}")));
        }
        total += bytes.unwrap_or_default();
        if total > SHARED * file_len {
            return Err(too_large(format!(
                "the keys up to {key} declare {total} bytes"
            )));
        }
    }
    Ok(())
}

/// The bytes of a tensor, if they can be counted in any order of its dimensions: a 0 at the end
/// does not undo an overflow before it. Quantized numbers take at least one bit.
fn bytes_of(shape: &[usize], dtype: DType) -> Option<u128> {
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

/// Whether every entry of a zip archive is as large as it is stored. PyTorch does not compress
/// what it saves, and a compressed entry can become a thousand times its size.
/// A file that is no archive is none of its business.
pub(super) fn check_archive(path: &Path, file_len: u64) -> Result<(), WeightsError> {
    let file = File::open(path).map_err(|source| super::file::file_error(path, source))?;
    let Ok(mut archive) = ZipArchive::new(BufReader::new(file)) else {
        return Ok(());
    };
    for index in 0..archive.len() {
        // What cannot be read is for the reader of the format to report.
        let Ok(entry) = archive.by_index_raw(index) else {
            continue;
        };
        if entry.size() > file_len {
            return Err(WeightsError::TooLarge {
                path: path.into(),
                what: format!(
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

    fn check_all(file_len: u64, tensors: &[(&str, &[usize])]) -> Result<(), String> {
        let tensors = tensors
            .iter()
            .map(|(key, shape)| (*key, *shape, DType::F32));
        check(Path::new("a.pt"), file_len, tensors).map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_file_can_hold() {
        for (file_len, shape) in [
            (40, vec![10]),
            (40, vec![]),
            (40, vec![0]),
            (40, vec![0, 40]),
            (40, vec![2, 5]),
        ] {
            assert_eq!(check_all(file_len, &[("a", &shape)]), Ok(()), "{shape:?}");
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
            let said = check_all(40, &[("a.b", &shape)]).expect_err("it is too large");
            assert!(
                said.starts_with(&format!("a.pt: key a.b declares {shape:?}")),
                "{said}"
            );
            assert!(said.contains("the file has 40 bytes"), "{said}");
        }
    }

    #[test]
    fn names_may_share_what_is_stored_but_not_without_end() {
        let tied = [("a", [10_usize].as_slice()); 16];
        assert_eq!(check_all(40, &tied), Ok(()));
        let endless = [("a", [10_usize].as_slice()); 17];
        let said = check_all(40, &endless).expect_err("more than 16 times the file");
        assert!(said.contains("declare 680 bytes"), "{said}");
    }
}
