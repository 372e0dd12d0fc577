//! Dates as people write them in English, to ISO 8601.
//!
//! ```text
//! 3rd of May 1998           ->  1998-05-03
//! Sunday, May 3, 1998       ->  1998-05-03
//! 25/12/98                  ->  1998-12-25
//! ```
//!
//! A form that could mean another day is not used: figures with slashes only where one of
//! them cannot be a month or both are the same, two figures of a year only where all years lie
//! within a century.

use chrono::{Datelike, Days, NaiveDate};
use zoo_config::Dates;
use zoo_spec::Draw;

use super::Generate;
use super::parts::parts;
use crate::{DataError, Pair, Parts};

type Form = (&'static str, fn(&str) -> String);

/// How dates are written: patterns by the signs of `strftime`, with `%o` for `3rd`, and what is done
/// to the letters of names.
const FORMS: [Form; 16] = [
    ("%o of %B %Y", str::to_owned),
    ("the %o of %B, %Y", str::to_owned),
    ("%B %-d, %Y", str::to_owned),
    ("%B %o, %Y", str::to_owned),
    ("%-d %B %Y", str::to_owned),
    ("%B %-d %Y", str::to_lowercase),
    ("%-d-%b-%Y", str::to_owned),
    ("%d %b %Y", str::to_uppercase),
    ("%A, %B %-d, %Y", str::to_owned),
    ("%a %-d %b %Y", str::to_owned),
    ("%Y/%m/%d", str::to_owned),
    ("%Y, %B %-d", str::to_owned),
    ("%m/%d/%Y", str::to_owned),
    ("%d/%m/%Y", str::to_owned),
    ("%d/%m/%y", str::to_owned),
    ("%-d %B '%y", str::to_owned),
];

/// Whether a pattern can mean this day only.
fn fits(pattern: &str, date: NaiveDate, within_a_century: bool) -> bool {
    let has_order = !pattern.contains('/') || pattern.starts_with("%Y");
    let order_is_clear = has_order || date.day() > 12 || date.day() == date.month();
    let year_is_clear = !pattern.contains("%y") || within_a_century;
    order_is_clear && year_is_clear
}

fn written(date: NaiveDate, (pattern, letters): (&str, fn(&str) -> String)) -> String {
    let pattern = pattern.replace("%o", &ordinal(date.day()));
    letters(&date.format(&pattern).to_string())
}

/// `1st`, `2nd`, `3rd`, `11th`.
fn ordinal(day: u32) -> String {
    let ending = match (day / 10, day % 10) {
        (1, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{day}{ending}")
}

/// Days between two years, in many forms. A day that is held back for validation is not among
/// those to learn from in any form.
impl Generate for Dates {
    type Example = Pair;

    fn generate(&self, seed: u64) -> Result<Parts<Vec<Pair>>, DataError> {
        let (first, last) = (self.first_year, self.last_year);
        DataError::at_least("first year", 1000, first)?;
        DataError::at_least("last year", first, last)?;
        DataError::at_most("last year", 9999, last)?;
        let new_year = |year: usize| NaiveDate::from_ymd_opt(year as i32, 1, 1);
        let counts = [self.train_size, self.valid_size, self.test_size];
        let draw = |draw: &mut Draw| {
            let (first_day, end) = (new_year(first)?, new_year(last + 1)?);
            pair(draw, first_day, end, last - first < 100)
        };
        let [text, date]: [fn(&Pair) -> String; 2] =
            [|it| it.source.clone(), |it| it.target.clone()];
        parts("dates", counts, seed, draw, [text, date])
    }
}

/// A day from the first one to before the end, in one of the forms that fit it.
fn pair(draw: &mut Draw, first: NaiveDate, end: NaiveDate, within_a_century: bool) -> Option<Pair> {
    let days = usize::try_from((end - first).num_days()).ok()?;
    let date = first.checked_add_days(Days::new(draw.below(days) as u64))?;
    let fitting = FORMS
        .into_iter()
        .filter(|(pattern, _)| fits(pattern, date, within_a_century));
    let form = *draw.choose(&fitting.collect::<Vec<_>>());
    Some(Pair::new(written(date, form), date.to_string()))
}

#[cfg(test)]
mod tests;
