//! One matrix of weights as a picture with tokens at its sides.

#[cfg(feature = "png")]
mod image;
#[cfg(feature = "png")]
mod letters;
mod svg;

use crate::{Matrix, PictureError};

/// A matrix to draw, with what stands at its sides: a row for each of `queries`, a column for each of
/// `keys`.
#[derive(Debug, Clone)]
pub struct Heat<'a> {
    pub(crate) title: String,
    pub(crate) queries: &'a [String],
    pub(crate) keys: &'a [String],
    pub(crate) weights: &'a Matrix,
}

/// Whether a matrix of a layer and a head, from 1, has a row and a column for each token.
pub(crate) fn check(
    title: &str,
    (layer, head): (usize, usize),
    queries: &[String],
    keys: &[String],
    weights: &Matrix,
) -> Result<(), PictureError> {
    let (rows, columns) = (weights.rows(), weights.columns());
    let (queries, keys) = (queries.len(), keys.len());
    if queries == 0 || keys == 0 {
        return Err(PictureError(format!(
            "{title}: there is nothing to attend to: {queries} queries and {keys} keys"
        )));
    }
    if (rows, columns) != (queries, keys) {
        return Err(PictureError(format!(
            "{title}, layer {layer}, head {head}: {rows} rows and {columns} columns for {queries} \
             queries and {keys} keys"
        )));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    pub(crate) fn heat<'a>(
        title: &str,
        queries: &'a [String],
        keys: &'a [String],
        weights: &'a Matrix,
    ) -> Heat<'a> {
        check(title, (1, 1), queries, keys, weights).unwrap();
        Heat {
            title: title.to_owned(),
            queries,
            keys,
            weights,
        }
    }

    #[test]
    fn sizes_must_agree() {
        let (queries, keys) = (words("a b"), words("x y z"));
        for (queries, rows, columns, message) in [
            (
                &queries[..],
                3,
                2,
                "t, layer 1, head 1: 3 rows and 2 columns for 2 queries and 3 keys",
            ),
            (
                &[],
                0,
                3,
                "t: there is nothing to attend to: 0 queries and 3 keys",
            ),
        ] {
            let wrong = Matrix::new(rows, columns, vec![0.1; rows * columns]).unwrap();
            let error = check("t", (1, 1), queries, &keys, &wrong).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
