use std::collections::HashSet;

use super::*;

#[test]
fn every_form_of_one_day() {
    let date = NaiveDate::from_ymd_opt(1998, 5, 3).unwrap();
    assert_eq!(
        FORMS.map(|form| written(date, form)),
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
    let written = days.map(ordinal).join(" ");
    assert_eq!(
        written,
        "1st 2nd 3rd 4th 10th 11th 12th 13th 20th 21st 22nd 23rd 30th 31st"
    );
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

/// The days a text can mean, read by its parts and not by its form.
fn meanings(text: &str, years: std::ops::RangeInclusive<i32>) -> HashSet<NaiveDate> {
    let small = text.to_lowercase();
    let words: Vec<&str> = small
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let month = words.iter().find_map(|word| {
        let at = MONTHS.iter().position(|name| word.starts_with(name))?;
        Some(at as u32 + 1)
    });
    let numbers: Vec<(usize, u32)> = words
        .iter()
        .map(|word| word.trim_end_matches(|c: char| c.is_ascii_alphabetic()))
        .filter(|figures| !figures.is_empty())
        .map(|figures| (figures.len(), figures.parse().unwrap()))
        .collect();
    let mut found = HashSet::new();
    let mut add = |year: (usize, u32), month: u32, day: u32| {
        for full in years.clone() {
            let same = match year.0 {
                4 => full as u32 == year.1,
                _ => full as u32 % 100 == year.1,
            };
            if same {
                found.extend(NaiveDate::from_ymd_opt(full, month, day));
            }
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
fn every_text_means_its_date_and_no_other() {
    for (first, last) in [(1950, 2049), (1600, 2400)] {
        let dates = Dates {
            first_year: first,
            last_year: last,
            train_size: 6000,
            valid_size: 300,
            test_size: 300,
        };
        let drawn = dates.generate(2).unwrap();
        let mut forms = HashSet::new();
        for pair in drawn.train.iter().chain(&drawn.valid).chain(&drawn.test) {
            let meant: Vec<String> = meanings(&pair.source, first as i32..=last as i32)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(meant, [pair.target.as_str()], "{}", pair.source);
            let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
            forms.insert(pair.source.chars().map(shape).collect::<String>());
        }
        assert!(forms.len() > 100, "{} forms", forms.len());
    }
}

#[test]
fn held_back_dates_are_new_in_every_form() {
    // 20,000 examples to learn from, 500 to validate with.
    let drawn = Dates::default().generate(7).unwrap();
    let learned = drawn.train.iter().map(|pair| pair.target.as_str());
    let learned: HashSet<&str> = learned.collect();
    let known = |pair: &&Pair| learned.contains(pair.target.as_str());
    assert_eq!(drawn.valid.iter().filter(known).count(), 0);
    assert!(
        learned.len() < drawn.train.len(),
        "some days in several forms"
    );
}
