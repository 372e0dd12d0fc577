//! English dates to ISO 8601.
//!
//! ```text
//! 3rd of May 1998           ->  1998-05-03
//! Sunday, May 3, 1998       ->  1998-05-03
//! 25/12/98                  ->  1998-12-25
//! ```
//!
//! Ambiguous formats are not used: numeric dates with slashes only if one number cannot be a month
//! or both are equal, two-digit years only if all years lie within a century.

use chrono::{Datelike, Days, NaiveDate};
use zoo_config::Dates;
use zoo_spec::SplitMix64;

use super::Generate;
use super::splits::generate_splits;
use crate::{DataError, Pair, Splits};

type Format = (&'static str, fn(&str) -> String);

/// Date formats: `strftime` patterns, with `%o` for `3rd`, and a change of letter case.
const FORMATS: [Format; 16] = [
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

fn is_unambiguous(pattern: &str, date: NaiveDate, within_century: bool) -> bool {
    let has_order = !pattern.contains('/') || pattern.starts_with("%Y");
    let order_is_clear = has_order || date.day() > 12 || date.day() == date.month();
    let year_is_clear = !pattern.contains("%y") || within_century;
    order_is_clear && year_is_clear
}

fn format_date(date: NaiveDate, (pattern, case): (&str, fn(&str) -> String)) -> String {
    let pattern = pattern.replace("%o", &ordinal(date.day()));
    case(&date.format(&pattern).to_string())
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

/// Days between two years, in many formats. A day of the validation or test split does not occur in
/// the training split in any format.
impl Generate for Dates {
    type Example = Pair;

    fn generate(&self, seed: u64) -> Result<Splits<Vec<Pair>>, DataError> {
        let (first, last) = (self.first_year, self.last_year);
        DataError::at_least("first_year", 1000, first)?;
        DataError::at_least("last_year", first, last)?;
        DataError::at_most("last_year", 9999, last)?;
        let new_year = |year: usize| NaiveDate::from_ymd_opt(year as i32, 1, 1);
        let counts = [self.train_size, self.valid_size, self.test_size];
        let sample = |rng: &mut SplitMix64| {
            let (first_day, end) = (new_year(first)?, new_year(last + 1)?);
            pair(rng, first_day, end, last - first < 100)
        };
        let [text, date]: [fn(&Pair) -> String; 2] =
            [|it| it.source.clone(), |it| it.target.clone()];
        generate_splits("dates", counts, seed, sample, [text, date])
    }
}

/// A random day from `first` to before `end`, in a random unambiguous format.
fn pair(
    rng: &mut SplitMix64,
    first: NaiveDate,
    end: NaiveDate,
    within_century: bool,
) -> Option<Pair> {
    let days = usize::try_from((end - first).num_days()).ok()?;
    let date = first.checked_add_days(Days::new(rng.below(days) as u64))?;
    let unambiguous = FORMATS
        .into_iter()
        .filter(|(pattern, _)| is_unambiguous(pattern, date, within_century));
    let format = *rng.choose(&unambiguous.collect::<Vec<_>>());
    Some(Pair::new(format_date(date, format), date.to_string()))
}

#[cfg(test)]
mod tests;
