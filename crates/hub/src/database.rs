//! A data set as Python left it: an SQLite file with a table for each split.

use std::path::{Path, PathBuf};

use burn_dataset::{Dataset, SqliteDataset, SqliteDatasetError};

use crate::{Cell, HubError, Row};

/// A data set in a file.
#[derive(Debug, Clone)]
pub struct Database {
    path: PathBuf,
}

impl Database {
    /// The data set in the file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of its splits.
    ///
    /// # Errors
    ///
    /// [`HubError::Database`] if it is no database.
    pub fn splits(&self) -> Result<Vec<String>, HubError> {
        // burn-dataset reads rows of a table by its name and nothing else. The name goes
        // into its SQL as it is, so a query in brackets is a table too.
        let tables = "(select rowid as row_id, type, name from sqlite_master)";
        let list = self.table(tables)?;
        let mut names = vec![];
        for index in 0..list.len() {
            let row = match list.get(index) {
                Ok(row) => row,
                // Where a table was dropped there is no row.
                Err(SqliteDatasetError::Other(_)) => continue,
                Err(error) => return Err(self.unreadable(&error)),
            };
            let text = |field| row.get(field).and_then(Cell::text).unwrap_or_default();
            if text("type") == "table" && !text("name").starts_with("sqlite_") {
                names.push(text("name").into_owned());
            }
        }
        Ok(names)
    }

    /// The rows of a split, one after the other, and how many there are.
    ///
    /// # Errors
    ///
    /// [`HubError::Database`] if there is no such split, or a row cannot be read.
    pub fn rows(
        &self,
        split: &str,
    ) -> Result<impl ExactSizeIterator<Item = Result<Row, HubError>>, HubError> {
        // In quotes: a split may be called test-hard, or as a word of SQL.
        let table = self.table(&format!("\"{}\"", split.replace('"', "\"\"")))?;
        Ok((0..table.len()).map(move |index| {
            let row = table.get(index);
            row.map_err(|error| self.unreadable(&error))
        }))
    }

    fn table(&self, name: &str) -> Result<SqliteDataset<Row>, HubError> {
        SqliteDataset::from_db_file(&self.path, name).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &SqliteDatasetError) -> HubError {
        HubError::Database {
            path: self.path.clone(),
            why: error.to_string(),
        }
    }
}
