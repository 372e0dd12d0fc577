//! Every number of a run: as JSON lines while it goes on, as tables and curves at its end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use zoo_config::Metric;
use zoo_viz::plot::Scale;
use zoo_viz::{Better, Curve, Curves};

use super::{RunFolder, write_atomic};
use crate::files::Appender;
use crate::{Result, TrainError};

const LINES: &str = "metrics.jsonl";

/// The part of what comes after the last step.
pub(crate) const TEST: &str = "test";

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// `train`, `valid` or `test`.
    pub(crate) part: String,
    pub(crate) step: usize,
    #[serde(flatten)]
    pub(crate) values: BTreeMap<String, f64>,
}

#[derive(Debug)]
pub(crate) struct Numbers {
    folder: RunFolder,
    rows: Vec<Row>,
    file: Appender,
}

impl Numbers {
    /// Those of a run that begins, or that is gone on with after a step: what came after it is
    /// to come again.
    pub(crate) fn open(folder: &RunFolder, last_step: usize) -> Result<Self> {
        let path = folder.file(LINES);
        let mut rows: Vec<Row> = vec![];
        if last_step > 0 && path.is_file() {
            let text = std::fs::read_to_string(&path).map_err(TrainError::file(&path))?;
            // The last line of a run that was killed may be half there.
            let whole = text.lines().filter_map(row_of);
            // A test comes after the last step, and so comes again.
            let is_before =
                |row: &Row| row.step < last_step || (row.step == last_step && row.part != TEST);
            rows = whole.filter(is_before).collect();
        }
        let lines: String = rows.iter().map(line).collect();
        write_atomic(&path, lines.as_bytes())?;
        Ok(Self {
            folder: folder.clone(),
            rows,
            file: Appender::open(&path)?,
        })
    }

    /// Adds a row, at once: a run that is killed keeps it.
    pub(crate) fn add(&mut self, row: Row) -> Result<()> {
        self.file.append(&line(&row))?;
        self.rows.push(row);
        Ok(())
    }

    pub(crate) fn finish(&self, metric: Metric) -> Result<()> {
        for part in ["train", "valid"] {
            let path = self.folder.file(&format!("{part}.csv"));
            write_atomic(&path, self.table(part).as_bytes())?;
        }
        self.draw(Metric::Loss)?;
        match metric {
            Metric::Loss => Ok(()),
            metric => self.draw(metric),
        }
    }

    fn draw(&self, metric: Metric) -> Result<()> {
        let word = metric.word();
        let validation = self.curve("validation", "valid", word);
        let (scale, curves) = match metric {
            Metric::Loss => {
                let training = self.curve("training", "train", word);
                (Scale::Log, vec![training, validation])
            }
            _ => (Scale::Linear, vec![validation]),
        };
        let curves = Curves {
            title: word.to_owned(),
            scale,
            better: match metric.less_is_better() {
                true => Better::Lower,
                false => Better::Higher,
            },
            curves,
        };
        let path = self.folder.file(&format!("{word}.svg"));
        write_atomic(&path, curves.to_svg().as_bytes())
    }

    fn of<'a>(&'a self, part: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.part == part)
    }

    fn curve(&self, name: &str, part: &str, value: &str) -> Curve {
        let points = self.of(part).filter_map(|row| {
            let value = row.values.get(value)?;
            Some((row.step as f64, *value))
        });
        Curve {
            name: name.to_owned(),
            points: points.collect(),
        }
    }

    fn table(&self, part: &str) -> String {
        let names: std::collections::BTreeSet<&str> = self
            .of(part)
            .flat_map(|row| row.values.keys().map(String::as_str))
            .collect();
        let mut table = csv::Writer::from_writer(vec![]);
        let header = std::iter::once("step").chain(names.iter().copied());
        // A vector takes whatever is written to it.
        let _ = table.write_record(header);
        for row in self.of(part) {
            let value = |name: &&str| {
                row.values
                    .get(*name)
                    .map(f64::to_string)
                    .unwrap_or_default()
            };
            let cells = std::iter::once(row.step.to_string()).chain(names.iter().map(value));
            let _ = table.write_record(cells);
        }
        let bytes = table.into_inner().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The last row of each part up to a step, in the order they first came; none where there are no
/// numbers yet.
pub(crate) fn last_rows(folder: &RunFolder, up_to: usize) -> Vec<Row> {
    let text = std::fs::read_to_string(folder.file(LINES)).unwrap_or_default();
    let mut last: Vec<Row> = vec![];
    let rows = text.lines().filter_map(row_of);
    for row in rows.filter(|row| row.step <= up_to) {
        match last.iter_mut().find(|own| own.part == row.part) {
            Some(own) => *own = row,
            None => last.push(row),
        }
    }
    last
}

/// What a line says, with every bit: `serde_json` reads decimals to within the last one alone, and
/// a run that goes on would change numbers that were written before.
fn row_of(line: &str) -> Option<Row> {
    #[derive(Deserialize)]
    struct Written {
        part: String,
        step: usize,
        #[serde(flatten)]
        values: BTreeMap<String, Option<f64>>,
    }
    let written: Written = serde_json::from_str(line).ok()?;
    let exact = |name: &str| {
        let (_, after) = line.split_once(&format!("\"{name}\":"))?;
        let end = after.find([',', '}'])?;
        after[..end].trim().parse::<f64>().ok()
    };
    let value = |(name, near): (String, Option<f64>)| {
        let value = near.map_or(f64::NAN, |near| exact(&name).unwrap_or(near));
        (name, value)
    };
    Some(Row {
        part: written.part,
        step: written.step,
        values: written.values.into_iter().map(value).collect(),
    })
}

fn line(row: &Row) -> String {
    // Numbers that are not finite become null, and none when read again.
    let text = serde_json::to_string(row).unwrap_or_default();
    format!("{text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
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
            assert_eq!(row_of(line(&row).trim_end()), Some(row));
        }
        let text = "{\"part\":\"train\",\"step\":2,\"loss\":1.5,\"norm\":null}";
        let row = row_of(text).unwrap();
        assert_eq!(row.values["loss"], 1.5);
        assert!(row.values["norm"].is_nan());
        assert_eq!(line(&row), format!("{text}\n"));
        assert_eq!(row_of("{\"part\":\"train\",\"st"), None);
    }
}
