use std::collections::HashSet;

use super::*;

#[test]
fn all_formats_of_one_day() {
    let date = NaiveDate::from_ymd_opt(1998, 5, 3).unwrap();
    assert_eq!(
        FORMATS.map(|format| format_date(date, format)),
        [
            "3rd of May 1998",
            "the 3rd of May, 1998",
            "May 3, 1998",
            "May 3rd, 1998",
            "3 May 1998",
            "may 3 1998",
            "3-May-1998",
            "03 MAY 1998",
            "Sunday, May 3, 1998",
            "Sun 3 May 1998",
            "1998/05/03",
            "1998, May 3",
            "05/03/1998",
            "03/05/1998",
            "03/05/98",
            "3 May '98",
        ]
    );
}

#[test]
fn ordinals() {
    let days = [1, 2, 3, 4, 10, 11, 12, 13, 20, 21, 22, 23, 30, 31];
    let expected = "1st 2nd 3rd 4th 10th 11th 12th 13th 20th 21st 22nd 23rd 30th 31st";
    assert_eq!(days.map(ordinal).join(" "), expected);
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

/// All days that a text can denote, independently of the formats above.
fn meanings(text: &str, years: std::ops::RangeInclusive<i32>) -> HashSet<NaiveDate> {
    let lowercase = text.to_lowercase();
    let words: Vec<&str> = lowercase
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let month = words.iter().find_map(|word| {
        let i = MONTHS.iter().position(|name| word.starts_with(name))?;
        Some(i as u32 + 1)
    });
    let numbers: Vec<(usize, u32)> = words
        .iter()
        .map(|word| word.trim_end_matches(|c: char| c.is_ascii_alphabetic()))
        .filter(|figures| !figures.is_empty())
        .map(|figures| (figures.len(), figures.parse().unwrap()))
        .collect();
    let mut found = HashSet::new();
    let mut add = |year: (usize, u32), month: u32, day: u32| {
        let modulus = 10_u32.pow(year.0 as u32);
        for full in years
            .clone()
            .filter(|full| *full as u32 % modulus == year.1)
        {
            found.extend(NaiveDate::from_ymd_opt(full, month, day));
        }
    };
    match (month, numbers.as_slice()) {
        (Some(month), [year, day]) if year.0 == 4 => add(*year, month, day.1),
        (Some(month), [day, year]) => add(*year, month, day.1),
        (None, [year, month, day]) if year.0 == 4 => add(*year, month.1, day.1),
        (None, [one, other, year]) => {
            add(*year, one.1, other.1);
            add(*year, other.1, one.1);
        }
        other => panic!("{text}: {other:?}"),
    }
    found
}

#[test]
fn dates_are_unambiguous() {
    for (first, last) in [(1950, 2049), (1600, 2400)] {
        let dates = Dates {
            first_year: first,
            last_year: last,
            train_size: 6000,
            valid_size: 300,
            test_size: 300,
        };
        let splits = dates.generate(2).unwrap();
        let mut formats = HashSet::new();
        for pair in splits.train.iter().chain(&splits.valid).chain(&splits.test) {
            let days = meanings(&pair.source, first as i32..=last as i32);
            let days: Vec<String> = days.iter().map(NaiveDate::to_string).collect();
            assert_eq!(days, [pair.target.as_str()], "{}", pair.source);
            let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
            formats.insert(pair.source.chars().map(shape).collect::<String>());
        }
        assert!(formats.len() > 100, "{} formats", formats.len());
    }
}

#[test]
fn held_out_dates_are_not_in_the_training_split() {
    // 20,000 training and 500 validation examples.
    let splits = Dates::default().generate(7).unwrap();
    let train_dates = splits.train.iter().map(|pair| pair.target.as_str());
    let train_dates: HashSet<&str> = train_dates.collect();
    let known = |pair: &Pair| train_dates.contains(pair.target.as_str());
    assert!(!splits.valid.iter().any(known));
    // Some days occur in several formats.
    assert!(train_dates.len() < splits.train.len());
}
