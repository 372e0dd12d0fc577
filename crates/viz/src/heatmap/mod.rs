//! Heatmap of one weight matrix, with token labels.

#[cfg(feature = "png")]
mod font;
#[cfg(feature = "png")]
mod image;
mod svg;

use crate::{Matrix, VizError};

/// A weight matrix with labels: a row for each of `queries`, a column for each of `keys`.
#[derive(Debug, Clone)]
pub struct Heatmap<'a> {
    pub(crate) title: String,
    /// Titles of the axes: queries, keys.
    pub(crate) axes: [&'a str; 2],
    pub(crate) queries: &'a [String],
    pub(crate) keys: &'a [String],
    pub(crate) weights: &'a Matrix,
}

/// Default titles of the axes.
pub(crate) const AXES: [&str; 2] = ["query", "key"];

/// Checks that a matrix has a row for each query and a column for each key. Layer and head are
/// counted from 1.
pub(crate) fn check(
    title: &str,
    (layer, head): (usize, usize),
    queries: &[String],
    keys: &[String],
    weights: &Matrix,
) -> Result<(), VizError> {
    let (rows, columns) = (weights.rows(), weights.columns());
    let (queries, keys) = (queries.len(), keys.len());
    if queries == 0 || keys == 0 {
        return Err(VizError(format!(
            "{title}: no tokens to show: {queries} queries and {keys} keys"
        )));
    }
    if (rows, columns) != (queries, keys) {
        return Err(VizError(format!(
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

    pub(crate) fn heatmap<'a>(
        title: &str,
        queries: &'a [String],
        keys: &'a [String],
        weights: &'a Matrix,
    ) -> Heatmap<'a> {
        check(title, (1, 1), queries, keys, weights).unwrap();
        Heatmap {
            title: title.to_owned(),
            axes: AXES,
            queries,
            keys,
            weights,
        }
    }

    #[test]
    fn mismatched_sizes_are_rejected() {
        let error = |queries: &[String], (rows, columns)| {
            let wrong = Matrix::new(rows, columns, vec![0.1; rows * columns]).unwrap();
            let checked = check("t", (1, 1), queries, &words("x y z"), &wrong);
            checked.unwrap_err().to_string()
        };
        let transposed = "t, layer 1, head 1: 3 rows and 2 columns for 2 queries and 3 keys";
        assert_eq!(error(&words("a b"), (3, 2)), transposed);
        let none = "t: no tokens to show: 0 queries and 3 keys";
        assert_eq!(error(&[], (0, 3)), none);
    }
}
