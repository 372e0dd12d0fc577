//! What cannot be drawn, and why.

/// Weights or tokens that make no picture.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PictureError {
    /// Not as many weights as a matrix has.
    #[error("a matrix of {rows} rows and {columns} columns has {} weights, got {got}", rows * columns)]
    Weights {
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
        /// The weights that came.
        got: usize,
    },
    /// A weight that is not a number, or infinite.
    #[error("the weight in row {row}, column {column} is {value}: weights must be finite")]
    NotFinite {
        /// Its row, from 0.
        row: usize,
        /// Its column.
        column: usize,
        /// What it is.
        value: f32,
    },
    /// A matrix without a row or a column.
    #[error("{title}: there is nothing to attend to: {queries} queries and {keys} keys")]
    Nothing {
        /// Of which picture.
        title: String,
        /// Its queries.
        queries: usize,
        /// Its keys.
        keys: usize,
    },
    /// A matrix that is not as large as there are tokens.
    #[error(
        "{title}, layer {layer}, head {head}: {rows} rows and {columns} columns for {queries} \
         queries and {keys} keys"
    )]
    Size {
        /// Of which picture.
        title: String,
        /// Which layer, from 1.
        layer: usize,
        /// Which head of it.
        head: usize,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of it.
        columns: usize,
        /// Tokens that attend.
        queries: usize,
        /// Tokens attended to.
        keys: usize,
    },
    /// A layer that is not there.
    #[error("{title} has no layer {layer}: it has {layers}, counted from 1")]
    NoSuchLayer {
        /// Of which picture.
        title: String,
        /// Which, from 1.
        layer: usize,
        /// How many there are.
        layers: usize,
    },
    /// A head that is not there.
    #[error("layer {layer} of {title} has no head {head}: it has {heads}, counted from 1")]
    NoSuchHead {
        /// Of which picture.
        title: String,
        /// Which layer, from 1.
        layer: usize,
        /// Which head.
        head: usize,
        /// How many there are.
        heads: usize,
    },
    /// A weight of a document that is not a number, or infinite.
    #[error("{title}: the weight of {what} is {value}: weights must be finite")]
    DocumentWeight {
        /// Of which document.
        title: String,
        /// Of which sentence, or word.
        what: String,
        /// What it is.
        value: f32,
    },
    /// An image that cannot be written.
    #[error("the image cannot be written: {why}")]
    Image {
        /// Why.
        why: String,
    },
}
