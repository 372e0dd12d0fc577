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

use super::calendar::{Date, days_of_year};
use super::parts::{Counts, Drawn, parts};
use crate::draw::Draw;
use crate::{DataError, Pair, Parts};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

/// How a date is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `3rd of May 1998`
    DayOfMonth,
    /// `the 3rd of May, 1998`
    TheDayOfMonth,
    /// `May 3, 1998`
    MonthDay,
    /// `May 3rd, 1998`
    MonthOrdinal,
    /// `3 May 1998`
    DayMonth,
    /// `may 3 1998`
    SmallLetters,
    /// `3-May-1998`
    Hyphens,
    /// `03 MAY 1998`
    Capitals,
    /// `Sunday, May 3, 1998`
    WeekdayMonthDay,
    /// `Sun 3 May 1998`
    WeekdayDayMonth,
    /// `1998/05/03`
    YearFirst,
    /// `1998, May 3`
    YearMonthDay,
    /// `12/25/1998`, where it cannot be the other
    MonthSlashDay,
    /// `25/12/1998`, where it cannot be the other
    DaySlashMonth,
    /// `25/12/98`, the same with two figures of the year
    ShortSlashes,
    /// `3 May '98`
    Apostrophe,
}

impl Form {
    const ALL: [Self; 16] = [
        Self::DayOfMonth,
        Self::TheDayOfMonth,
        Self::MonthDay,
        Self::MonthOrdinal,
        Self::DayMonth,
        Self::SmallLetters,
        Self::Hyphens,
        Self::Capitals,
        Self::WeekdayMonthDay,
        Self::WeekdayDayMonth,
        Self::YearFirst,
        Self::YearMonthDay,
        Self::MonthSlashDay,
        Self::DaySlashMonth,
        Self::ShortSlashes,
        Self::Apostrophe,
    ];

    /// Whether it can mean this day only.
    fn fits(self, date: Date, within_a_century: bool) -> bool {
        let order_is_clear = date.day > 12 || date.day == date.month;
        match self {
            Self::MonthSlashDay | Self::DaySlashMonth => order_is_clear,
            Self::ShortSlashes => order_is_clear && within_a_century,
            Self::Apostrophe => within_a_century,
            _ => true,
        }
    }

    fn write(self, date: Date) -> String {
        let Date { year, month, day } = date;
        let name = MONTHS[month - 1];
        let weekday = WEEKDAYS[date.weekday()];
        let short = year % 100;
        match self {
            Self::DayOfMonth => format!("{} of {name} {year}", ordinal(day)),
            Self::TheDayOfMonth => format!("the {} of {name}, {year}", ordinal(day)),
            Self::MonthDay => format!("{name} {day}, {year}"),
            Self::MonthOrdinal => format!("{name} {}, {year}", ordinal(day)),
            Self::DayMonth => format!("{day} {name} {year}"),
            Self::SmallLetters => format!("{} {day} {year}", name.to_lowercase()),
            Self::Hyphens => format!("{day}-{}-{year}", &name[..3]),
            Self::Capitals => format!("{day:02} {} {year}", name[..3].to_uppercase()),
            Self::WeekdayMonthDay => format!("{weekday}, {name} {day}, {year}"),
            Self::WeekdayDayMonth => format!("{} {day} {} {year}", &weekday[..3], &name[..3]),
            Self::YearFirst => format!("{year}/{month:02}/{day:02}"),
            Self::YearMonthDay => format!("{year}, {name} {day}"),
            Self::MonthSlashDay => format!("{month:02}/{day:02}/{year}"),
            Self::DaySlashMonth => format!("{day:02}/{month:02}/{year}"),
            Self::ShortSlashes => format!("{day:02}/{month:02}/{short:02}"),
            Self::Apostrophe => format!("{day} {name} '{short:02}"),
        }
    }
}

/// `1st`, `2nd`, `3rd`, `11th`.
fn ordinal(day: usize) -> String {
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
        let days: usize = (self.first..=self.last).map(days_of_year).sum();
        parts("dates", counts, seed, |draw| {
            let example = self.pair(draw, days);
            Some(Drawn {
                identity: example.source.clone(),
                secret: example.target.clone(),
                example,
            })
        })
    }

    fn pair(&self, draw: &mut Draw, days: usize) -> Pair {
        let date = Date::after(self.first, draw.below(days));
        let within_a_century = self.last - self.first < 100;
        let fitting = Form::ALL
            .into_iter()
            .filter(|form| form.fits(date, within_a_century));
        let form = *draw.choose(&fitting.collect::<Vec<_>>());
        Pair::new(form.write(date), date.to_string())
    }
}

#[cfg(test)]
mod tests;
