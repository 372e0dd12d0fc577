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

use super::parts::{Counts, Drawn, parts};
use crate::draw::Draw;
use crate::{DataError, Pair, Parts};

/// How a date is written.
#[derive(Debug, Clone, Copy)]
struct Form {
    /// By the signs of `strftime`, with `%o` for `3rd`.
    pattern: &'static str,
    letters: Letters,
    clear: Clear,
}

/// The letters of names.
#[derive(Debug, Clone, Copy)]
enum Letters {
    AsTheyAre,
    Small,
    Capital,
}

/// Where a form can mean one day only.
#[derive(Debug, Clone, Copy)]
enum Clear {
    Always,
    /// Where the day cannot be the month, or both are the same.
    Order,
    /// Where all years lie within a century.
    Century,
    OrderAndCentury,
}

impl Form {
    const ALL: [Self; 16] = [
        Self::new("%o of %B %Y"),
        Self::new("the %o of %B, %Y"),
        Self::new("%B %-d, %Y"),
        Self::new("%B %o, %Y"),
        Self::new("%-d %B %Y"),
        Self::new("%B %-d %Y").with_letters(Letters::Small),
        Self::new("%-d-%b-%Y"),
        Self::new("%d %b %Y").with_letters(Letters::Capital),
        Self::new("%A, %B %-d, %Y"),
        Self::new("%a %-d %b %Y"),
        Self::new("%Y/%m/%d"),
        Self::new("%Y, %B %-d"),
        Self::new("%m/%d/%Y").clear_by(Clear::Order),
        Self::new("%d/%m/%Y").clear_by(Clear::Order),
        Self::new("%d/%m/%y").clear_by(Clear::OrderAndCentury),
        Self::new("%-d %B '%y").clear_by(Clear::Century),
    ];

    const fn new(pattern: &'static str) -> Self {
        Self {
            pattern,
            letters: Letters::AsTheyAre,
            clear: Clear::Always,
        }
    }

    const fn with_letters(mut self, letters: Letters) -> Self {
        self.letters = letters;
        self
    }

    const fn clear_by(mut self, clear: Clear) -> Self {
        self.clear = clear;
        self
    }

    /// Whether it can mean this day only.
    fn fits(self, date: NaiveDate, within_a_century: bool) -> bool {
        let order_is_clear = date.day() > 12 || date.day() == date.month();
        match self.clear {
            Clear::Always => true,
            Clear::Order => order_is_clear,
            Clear::Century => within_a_century,
            Clear::OrderAndCentury => order_is_clear && within_a_century,
        }
    }

    fn write(self, date: NaiveDate) -> String {
        let pattern = self.pattern.replace("%o", &ordinal(date.day()));
        let written = date.format(&pattern).to_string();
        match self.letters {
            Letters::AsTheyAre => written,
            Letters::Small => written.to_lowercase(),
            Letters::Capital => written.to_uppercase(),
        }
    }
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dates {
    first: usize,
    last: usize,
}

impl Default for Dates {
    fn default() -> Self {
        Self {
            first: 1950,
            last: 2049,
        }
    }
}

impl Dates {
    /// Days from 1950 to 2049.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first and the last year, of four figures. Default: 1950 and 2049.
    #[must_use]
    pub fn with_years(mut self, first: usize, last: usize) -> Self {
        self.first = first;
        self.last = last;
        self
    }

    /// Makes them up.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if the years make no sense, [`DataError::TaskTooSmall`] if there are
    /// not as many dates.
    pub fn generate(&self, counts: Counts, seed: u64) -> Result<Parts<Vec<Pair>>, DataError> {
        DataError::at_least("first year", 1000, self.first)?;
        DataError::at_least("last year", self.first, self.last)?;
        DataError::at_most("last year", 9999, self.last)?;
        let new_year = |year: usize| NaiveDate::from_ymd_opt(year as i32, 1, 1);
        parts("dates", counts, seed, |draw| {
            let example = self.pair(draw, new_year(self.first)?, new_year(self.last + 1)?)?;
            Some(Drawn {
                identity: example.source.clone(),
                secret: example.target.clone(),
                example,
            })
        })
    }

    /// A day from the first one to before the end, in one of the forms that fit it.
    fn pair(&self, draw: &mut Draw, first: NaiveDate, end: NaiveDate) -> Option<Pair> {
        let days = usize::try_from((end - first).num_days()).ok()?;
        let date = first.checked_add_days(Days::new(draw.below(days) as u64))?;
        let within_a_century = self.last - self.first < 100;
        let fitting = Form::ALL
            .into_iter()
            .filter(|form| form.fits(date, within_a_century));
        let form = *draw.choose(&fitting.collect::<Vec<_>>());
        Some(Pair::new(form.write(date), date.to_string()))
    }
}

#[cfg(test)]
mod tests;
