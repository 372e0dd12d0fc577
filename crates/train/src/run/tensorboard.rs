//! Metrics as TensorBoard event files. Every start of a run adds a file.
//!
//! A file is a sequence of records: length of the data in 8 bytes, masked CRC-32C of the length,
//! data, masked CRC-32C of the data. The data is a protobuf message `tensorflow.Event`.

use std::time::SystemTime;

use super::{Row, RunFolder};
use crate::files::{Appender, create_folder};
use crate::{Result, TrainError};

pub(super) const FOLDER: &str = "tensorboard";
const PREFIX: &str = "events.out.tfevents.";

// Field numbers of `Event`.
const FILE_VERSION: u8 = 3;
const SUMMARY: u8 = 5;
const SESSION_LOG: u8 = 7;

/// `SessionLog` with `status = START`.
const START: [u8; 2] = [1 << 3, 1];

pub(super) fn is_event_file(name: &str) -> bool {
    let number = name.strip_prefix(PREFIX).unwrap_or_default();
    number.len() >= 5 && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The number of an event file.
fn number(name: &str) -> Option<usize> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

#[derive(Debug)]
pub(super) struct EventFile(Appender);

impl EventFile {
    /// Adds a file to the run, which has these rows up to `last_step`.
    pub(super) fn create(run: &RunFolder, last_step: usize, rows: &[Row]) -> Result<Self> {
        let folder = run.file(FOLDER);
        create_folder(&folder)?;
        let files = std::fs::read_dir(&folder).map_err(TrainError::file(&folder))?;
        // TensorBoard reads the files in the order of their names.
        let numbers = files
            .flatten()
            .filter_map(|file| number(file.file_name().to_str()?));
        let number = numbers.max().map_or(0, |last| last + 1);
        let path = folder.join(format!("{PREFIX}{number:05}"));
        let mut file = Self(Appender::open(&path)?);
        file.append(0, FILE_VERSION, b"brain.Event:2")?;
        // A start drops the rows from its step on. Those of `last_step` are repeated, because the
        // test, which comes after them, is computed again.
        let first = if number == 0 { 0 } else { last_step };
        file.append(first, SESSION_LOG, &START)?;
        let mut repeated = rows.iter().filter(|row| row.step >= first);
        repeated.try_for_each(|row| file.add(row))?;
        Ok(file)
    }

    /// Writes the values of a row, with tags such as `train/loss`.
    pub(super) fn add(&mut self, row: &Row) -> Result<()> {
        let value = |(name, value): (&String, &f64)| {
            let mut tag = bytes_field(1, format!("{}/{name}", row.part).as_bytes());
            tag.push(2 << 3 | 5);
            tag.extend((*value as f32).to_le_bytes());
            bytes_field(1, &tag)
        };
        let summary: Vec<u8> = row.values.iter().flat_map(value).collect();
        self.append(row.step, SUMMARY, &summary)
    }

    fn append(&mut self, step: usize, field: u8, content: &[u8]) -> Result<()> {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let mut event = vec![1 << 3 | 1];
        event.extend(now.as_secs_f64().to_le_bytes());
        event.push(2 << 3);
        event.extend(varint(step));
        event.extend(bytes_field(field, content));
        self.0.append(record(&event))
    }
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let [length_crc, data_crc] = [&length, data].map(|bytes| masked_crc(bytes).to_le_bytes());
    [&length, &length_crc[..], data, &data_crc].concat()
}

/// A protobuf field of bytes, a string or a message.
fn bytes_field(field: u8, content: &[u8]) -> Vec<u8> {
    [&[field << 3 | 2], &varint(content.len())[..], content].concat()
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = vec![];
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn masked_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// CRC-32C, with another polynomial than the CRC-32 of zip files.
fn crc32c(data: &[u8]) -> u32 {
    let shift = |crc: u32, _| (crc >> 1) ^ (0x82F6_3B78 * (crc & 1));
    let add = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), shift);
    !data.iter().fold(!0, add)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::run::{MetricsLog, TEST};
    use crate::temp_dir::TempDir;

    /// A tag, a step and a value.
    type Point = (String, usize, f32);

    /// The points of a folder, read as TensorBoard does.
    fn read(folder: &Path) -> Vec<Point> {
        let files = std::fs::read_dir(folder).unwrap();
        let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let mut points = vec![];
        for file in files {
            assert!(is_event_file(file.file_name().unwrap().to_str().unwrap()));
            let bytes = std::fs::read(file).unwrap();
            let mut rest = bytes.as_slice();
            while let Some((data, after)) = read_record(rest) {
                rest = after;
                read_event(data, &mut points);
            }
        }
        points
    }

    /// The first record and the bytes after it; None if it is incomplete.
    fn read_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let (length_crc, rest) = rest.split_first_chunk::<4>()?;
        assert_eq!(masked_crc(length), u32::from_le_bytes(*length_crc));
        let (data, rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        let (data_crc, rest) = rest.split_first_chunk::<4>()?;
        assert_eq!(masked_crc(data), u32::from_le_bytes(*data_crc));
        Some((data, rest))
    }

    fn read_event(data: &[u8], points: &mut Vec<Point>) {
        let fields = read_fields(data);
        let step = fields[1].1;
        assert!(f64::from_bits(fields[0].1 as u64) > 1.7e9, "a time");
        let (field, _, content) = fields[2];
        match field {
            FILE_VERSION => assert_eq!(content, b"brain.Event:2"),
            SESSION_LOG => {
                assert_eq!(content, [8, 1]);
                points.retain(|point| point.1 < step);
            }
            SUMMARY => points.extend(read_fields(content).into_iter().map(|(_, _, value)| {
                let [(_, _, tag), (_, bits, _)] = read_fields(value)[..] else {
                    panic!("{value:?}")
                };
                let tag = String::from_utf8(tag.to_vec()).unwrap();
                (tag, step, f32::from_bits(bits as u32))
            })),
            other => panic!("field {other}"),
        }
    }

    /// The fields of a message: number, numeric value, bytes.
    fn read_fields(mut data: &[u8]) -> Vec<(u8, usize, &[u8])> {
        let mut fields = vec![];
        while let Some((key, rest)) = data.split_first() {
            data = rest;
            let mut fixed = |width: usize| {
                let (bytes, rest) = data.split_at(width);
                data = rest;
                let number = bytes.iter().rev();
                number.fold(0, |number, byte| number << 8 | usize::from(*byte))
            };
            let mut number = 0;
            let mut content = &[][..];
            match key & 7 {
                1 => number = fixed(8),
                5 => number = fixed(4),
                _ => {
                    for shift in (0..).step_by(7) {
                        let byte = fixed(1);
                        number |= (byte & 0x7F) << shift;
                        if byte < 0x80 {
                            break;
                        }
                    }
                    if key & 7 == 2 {
                        (content, data) = data.split_at(number);
                    }
                }
            }
            fields.push((key >> 3, number, content));
        }
        fields
    }

    #[test]
    fn checksums_are_crc_32c() {
        // RFC 3720, B.4, and the usual check value.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(varint(300), [0xAC, 2]);
    }

    #[test]
    fn resumed_runs_have_every_row_once() {
        let folder = TempDir::new();
        folder.write("config.toml", "");
        let run = RunFolder::open(&folder.join("")).unwrap();
        let events = folder.join(FOLDER);
        let row = |part: &str, step: usize, loss: f64| Row {
            part: part.to_owned(),
            step,
            values: BTreeMap::from([("loss".to_owned(), loss), ("norm".to_owned(), 300.0)]),
        };
        let assert_complete = |log: &MetricsLog| {
            let point = |row: &Row| {
                let (part, step) = (row.part.clone(), row.step);
                let point = move |(name, value): (&String, &f64)| {
                    (format!("{part}/{name}"), step, *value as f32)
                };
                row.values.iter().map(point).collect::<Vec<_>>()
            };
            let expected: Vec<Point> = log.rows().iter().flat_map(point).collect();
            assert_eq!(read(&events), expected);
        };

        let mut log = MetricsLog::open(&run, 0, true).unwrap();
        for row in [
            row("train", 2, 3.0),
            row("train", 400, 2.0),
            row("valid", 400, 2.5),
            row(TEST, 400, 2.6),
            row("train", 401, 1.9),
        ] {
            log.add(row).unwrap();
        }
        assert_complete(&log);
        assert_eq!(read(&events).len(), 10);
        // The last record of a killed process may be incomplete.
        let path = events.join("events.out.tfevents.00000");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();

        let mut log = MetricsLog::open(&run, 400, true).unwrap();
        assert_complete(&log);
        log.add(row("train", 401, 1.8)).unwrap();
        log.add(row(TEST, 401, 2.4)).unwrap();
        assert_complete(&log);
        assert_eq!(read(&events).len(), 10);
        // The first one may be removed: the next comes after the last.
        std::fs::remove_file(&path).unwrap();
        MetricsLog::open(&run, 401, true).unwrap();
        let last = std::fs::read(events.join("events.out.tfevents.00001")).unwrap();
        MetricsLog::open(&run, 401, true).unwrap();
        assert_eq!(std::fs::read_dir(&events).unwrap().count(), 3);
        assert!(events.join("events.out.tfevents.00003").is_file());
        let unchanged = std::fs::read(events.join("events.out.tfevents.00001")).unwrap();
        assert_eq!(last, unchanged);
        // Resumed without event files, and with them again.
        MetricsLog::open(&run, 401, false).unwrap();
        assert_eq!(std::fs::read_dir(&events).unwrap().count(), 3);
        std::fs::remove_dir_all(&events).unwrap();
        assert_complete(&MetricsLog::open(&run, 401, true).unwrap());
        assert_eq!(read(&events).len(), 8);
    }
}
