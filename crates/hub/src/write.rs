//! Files of a data set: all of them, or none.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::form::Piece;
use crate::{Cell, Database, Form, HubError, Part};

/// Classes that are named when a file is written; more are a number.
const CLASSES_SHOWN: usize = 20;

/// What was written of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// What it is used for.
    pub part: Part,
    /// The file.
    pub path: PathBuf,
    /// Rows that are in it.
    pub rows: usize,
    /// Rows that are not, since a field that is needed has nothing in it.
    pub blank: usize,
    /// Rows with tabs or ends of lines that became spaces.
    pub smoothed: usize,
    /// The fields of the split, and what they hold.
    pub fields: Vec<(String, &'static str)>,
    /// The classes there are, if classes were asked for.
    pub classes: BTreeSet<String>,
}

impl Written {
    /// A few lines for people.
    pub fn summary(&self) -> String {
        let mut lines = vec![format!("{}: {}", self.path.display(), rows(self.rows))];
        if self.blank > 0 {
            let blank = rows(self.blank);
            lines.push(format!("  {blank} left out: a field has nothing in it"));
        }
        if self.smoothed > 0 {
            let smoothed = rows(self.smoothed);
            lines.push(format!(
                "  {smoothed} whose tabs or ends of lines became spaces"
            ));
        }
        let left_out = |kind: &str| if kind == "bytes" { ", left out" } else { "" };
        let fields = self.fields.iter();
        let fields: Vec<_> = fields
            .map(|(name, kind)| format!("{name} ({kind}{})", left_out(kind)))
            .collect();
        lines.push(format!("  fields: {}", fields.join(", ")));
        match self.classes.len() {
            0 => {}
            1..=CLASSES_SHOWN => {
                let classes: Vec<_> = self.classes.iter().map(String::as_str).collect();
                lines.push(format!("  classes: {}", classes.join(", ")));
            }
            count => lines.push(format!("  classes: {count}")),
        }
        lines.join("\n")
    }
}

fn rows(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} row{plural}")
}

/// The file of a part.
fn path(folder: &Path, part: Part, form: &Form) -> PathBuf {
    folder.join(part.word()).with_extension(form.extension())
}

/// Refuses to replace a file of any part: to be asked before anything slow.
///
/// # Errors
///
/// [`HubError::Exists`] with the first one that is there.
pub fn refuse_existing(folder: &Path, form: &Form) -> Result<(), HubError> {
    let paths = Part::ALL.map(|part| path(folder, part, form));
    match paths.into_iter().find(|path| path.exists()) {
        Some(path) => Err(HubError::Exists(path)),
        None => Ok(()),
    }
}

/// Writes a file for each part. They get their names when all are whole.
///
/// # Errors
///
/// What [`HubError`] has for databases, fields and files; nothing is changed then.
pub fn write(
    database: &Database,
    splits: &[(Part, String)],
    form: &Form,
    folder: &Path,
) -> Result<Vec<Written>, HubError> {
    fs::create_dir_all(folder).map_err(HubError::write(folder))?;
    let mut done = vec![];
    for (part, split) in splits {
        let partial = Partial(folder.join(format!(".{}-{}", part.word(), std::process::id())));
        let path = path(folder, *part, form);
        done.push((
            write_split(database, *part, split, form, path, &partial)?,
            partial,
        ));
    }
    let mut all = vec![];
    for (written, partial) in done {
        fs::rename(&partial.0, &written.path).map_err(HubError::write(&written.path))?;
        all.push(written);
    }
    Ok(all)
}

/// A file that is not whole yet, removed if it does not become so.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn write_split(
    database: &Database,
    part: Part,
    split: &str,
    form: &Form,
    path: PathBuf,
    partial: &Partial,
) -> Result<Written, HubError> {
    let failed = || HubError::write(&path);
    let mut file = BufWriter::new(File::create(&partial.0).map_err(failed())?);
    let mut written = Written {
        part,
        path: path.clone(),
        rows: 0,
        blank: 0,
        smoothed: 0,
        fields: vec![],
        classes: BTreeSet::new(),
    };
    let rows = database.rows(split)?;
    let count = rows.len();
    for (index, row) in rows.enumerate() {
        let row = row?;
        if written.fields.is_empty() {
            let fields = row
                .fields()
                .map(|name| (name.to_owned(), Cell::Missing.kind()));
            written.fields = fields.collect();
        }
        for ((_, kind), (_, cell)) in written.fields.iter_mut().zip(&row.0) {
            // Until something is there; numbers of which some are whole are numbers.
            if *kind == Cell::Missing.kind() || matches!(cell, Cell::Real(_) | Cell::Bytes(_)) {
                *kind = cell.kind();
            }
        }
        match form.piece(&row, split, index + 1)? {
            Piece::Blank => written.blank += 1,
            Piece::Written { text, smoothed } => {
                written.rows += 1;
                written.smoothed += usize::from(smoothed);
                file.write_all(text.as_bytes()).map_err(failed())?;
                if let Form::Labelled { label, .. } = form {
                    let class = row.get(label).and_then(Cell::text).unwrap_or_default();
                    written.classes.insert(class.into_owned());
                }
            }
        }
    }
    if written.rows == 0 {
        return Err(HubError::Empty {
            split: split.to_owned(),
            rows: count,
        });
    }
    let file = file
        .into_inner()
        .map_err(|error| failed()(error.into_error()))?;
    // On the disk before it gets its name: a power cut leaves no short file behind.
    file.sync_all().map_err(failed())?;
    Ok(written)
}
