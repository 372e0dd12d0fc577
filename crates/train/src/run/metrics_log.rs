//! The metrics of a run: JSON lines during training, CSV tables and plots after each validation, and
//! optional TensorBoard event files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use serde::{Deserialize, Serialize};
use zoo_config::Metric;
use zoo_viz::plot::Scale;
use zoo_viz::{Better, Curve, Curves};

use super::tensorboard::EventFile;
use super::{RunFolder, write_atomic};
use crate::files::Appender;
use crate::{Result, TrainError};

const METRICS: &str = "metrics.jsonl";

/// The split that is evaluated after the last step.
pub(crate) const TEST: &str = "test";

/// Peak memory of training in bytes. Missing in runs of earlier versions, and where it cannot be
/// measured.
pub(crate) const MEMORY: &str = "memory";

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// The split: `train`, `valid` or `test`.
    pub(crate) part: String,
    pub(crate) step: usize,
    #[serde(flatten)]
    pub(crate) values: BTreeMap<String, f64>,
}

#[derive(Debug)]
pub(crate) struct MetricsLog {
    folder: RunFolder,
    rows: Vec<Row>,
    file: Appender,
    event_file: Option<EventFile>,
}

impl MetricsLog {
    /// Opens the log of a new run, or of a run resumed after `last_step`: later rows are removed,
    /// because they are computed again.
    pub(crate) fn open(folder: &RunFolder, last_step: usize, tensorboard: bool) -> Result<Self> {
        let path = folder.file(METRICS);
        let mut rows: Vec<Row> = vec![];
        if last_step > 0 && path.is_file() {
            let text = std::fs::read_to_string(&path).map_err(TrainError::file(&path))?;
            // The last line of a killed run may be incomplete.
            let complete = text.lines().filter_map(parse_row);
            // The test comes after the last step.
            let is_before =
                |row: &Row| row.step < last_step || (row.step == last_step && row.part != TEST);
            rows = complete.filter(is_before).collect();
        }
        let lines: String = rows.iter().map(to_line).collect();
        write_atomic(&path, lines.as_bytes())?;
        let event_file = tensorboard.then(|| EventFile::create(folder, last_step, &rows));
        Ok(Self {
            folder: folder.clone(),
            rows,
            event_file: event_file.transpose()?,
            file: Appender::open(&path)?,
        })
    }

    /// Adds a row and writes it immediately.
    pub(crate) fn add(&mut self, row: Row) -> Result<()> {
        self.file.append(to_line(&row))?;
        if let Some(event_file) = &mut self.event_file {
            event_file.add(&row)?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Writes the CSV tables and the curves.
    pub(crate) fn write_tables_and_plots(&self, metric: Metric) -> Result<()> {
        for split in ["train", "valid"] {
            let path = self.folder.file(&format!("{split}.csv"));
            write_atomic(&path, self.to_csv(split).as_bytes())?;
        }
        self.write_plot(Metric::Loss)?;
        match metric {
            Metric::Loss => Ok(()),
            metric => self.write_plot(metric),
        }
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn write_plot(&self, metric: Metric) -> Result<()> {
        let name = metric.name();
        let mut curves = vec![curve(&self.rows, "validation", "valid", metric)];
        if metric == Metric::Loss {
            curves.insert(0, curve(&self.rows, "training", "train", metric));
        }
        let path = self.folder.file(&format!("{name}.svg"));
        write_atomic(&path, plot(name, metric, curves).to_svg().as_bytes())
    }

    fn rows_of<'a>(&'a self, split: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.part == split)
    }

    fn to_csv(&self, split: &str) -> String {
        let names = self.rows_of(split).flat_map(|row| row.values.keys());
        let names: BTreeSet<&str> = names.map(String::as_str).collect();
        let mut table = csv::Writer::from_writer(vec![]);
        let header = std::iter::once("step").chain(names.iter().copied());
        // Writing to a vector cannot fail.
        let _ = table.write_record(header);
        for row in self.rows_of(split) {
            let value = |name: &&str| row.values.get(*name).map_or(String::new(), f64::to_string);
            let cells = std::iter::once(row.step.to_string()).chain(names.iter().map(value));
            let _ = table.write_record(cells);
        }
        let bytes = table.into_inner().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The curve of a metric on a split.
pub(crate) fn curve(rows: &[Row], name: &str, split: &str, metric: Metric) -> Curve {
    let points = rows.iter().filter(|row| row.part == split);
    let points = points.filter_map(|row| {
        let value = row.values.get(metric.name())?;
        Some((row.step as f64, *value))
    });
    Curve {
        name: name.to_owned(),
        points: points.collect(),
    }
}

/// The curves of a metric.
pub(crate) fn plot(title: &str, metric: Metric, curves: Vec<Curve>) -> Curves {
    Curves {
        title: title.to_owned(),
        scale: if metric == Metric::Loss {
            Scale::Log
        } else {
            Scale::Linear
        },
        better: if metric.lower_is_better() {
            Better::Lower
        } else {
            Better::Higher
        },
        curves,
    }
}

/// All complete rows of a run; none if there are no metrics yet.
pub(crate) fn read_rows(folder: &RunFolder) -> Result<Vec<Row>> {
    let path = folder.file(METRICS);
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
        text => text.map_err(TrainError::file(&path))?,
    };
    Ok(text.lines().filter_map(parse_row).collect())
}

/// The last row of each split up to a step, in the order of the first ones.
pub(crate) fn last_rows(rows: Vec<Row>, up_to: usize) -> Vec<Row> {
    let mut last: Vec<Row> = vec![];
    for row in rows.into_iter().filter(|row| row.step <= up_to) {
        match last.iter_mut().find(|last| last.part == row.part) {
            Some(last) => *last = row,
            None => last.push(row),
        }
    }
    last
}

/// Parses a line exactly. `serde_json` may be off by the last bit, and a resumed run would then
/// change values that were written before.
fn parse_row(line: &str) -> Option<Row> {
    #[derive(Deserialize)]
    struct RowRecord {
        part: String,
        step: usize,
        #[serde(flatten)]
        values: BTreeMap<String, Option<f64>>,
    }
    let record: RowRecord = serde_json::from_str(line).ok()?;
    let exact = |name: &str| {
        let (_, after) = line.split_once(&format!("\"{name}\":"))?;
        let end = after.find([',', '}'])?;
        after[..end].trim().parse::<f64>().ok()
    };
    let value = |(name, approximate): (String, Option<f64>)| {
        let value = approximate.map_or(f64::NAN, |value| exact(&name).unwrap_or(value));
        (name, value)
    };
    Some(Row {
        part: record.part,
        step: record.step,
        values: record.values.into_iter().map(value).collect(),
    })
}

fn to_line(row: &Row) -> String {
    // Non-finite values are written as null and read as NaN.
    let text = serde_json::to_string(row).unwrap_or_default();
    format!("{text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_a_round_trip() {
        let mut bits = 1_u64;
        for _ in 0..1000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let value = f64::from_bits(0x3FE0_0000_0000_0000 | bits >> 12);
            let values = [
                ("loss", value),
                ("loss_scale", value * 1e9),
                ("rate", value * 1e-9),
            ];
            let row = Row {
                part: "train".to_owned(),
                step: 7,
                values: values.map(|(name, value)| (name.to_owned(), value)).into(),
            };
            assert_eq!(parse_row(to_line(&row).trim_end()), Some(row));
        }
        let text = "{\"part\":\"train\",\"step\":2,\"loss\":1.5,\"norm\":null}";
        let row = parse_row(text).unwrap();
        assert_eq!(row.values["loss"], 1.5);
        assert!(row.values["norm"].is_nan());
        assert_eq!(to_line(&row), format!("{text}\n"));
        assert_eq!(parse_row("{\"part\":\"train\",\"st"), None);
    }
}
