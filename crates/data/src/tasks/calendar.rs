//! Days of the Gregorian calendar.

use std::fmt;

/// A day that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Date {
    /// The year.
    pub year: usize,
    /// 1 to 12.
    pub month: usize,
    /// 1 to 31, and no more than its month has.
    pub day: usize,
}

impl Date {
    /// A day, if there is one.
    pub fn new(year: usize, month: usize, day: usize) -> Option<Self> {
        let exists = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
        exists.then_some(Self { year, month, day })
    }

    /// The day that so many days after the first of a year's January.
    pub(super) fn after(year: usize, days: usize) -> Self {
        let mut date = Self {
            year,
            month: 1,
            day: 1,
        };
        let mut left = days;
        loop {
            let in_month = days_of(date.year, date.month);
            if left < in_month {
                date.day = left + 1;
                return date;
            }
            left -= in_month;
            date.month += 1;
            if date.month > 12 {
                date.month = 1;
                date.year += 1;
            }
        }
    }

    /// The day of the week, Monday is 0.
    pub fn weekday(self) -> usize {
        let before = self.year - 1;
        let years = before * 365 + before / 4 - before / 100 + before / 400;
        let months: usize = (1..self.month).map(|month| days_of(self.year, month)).sum();
        // The first of January of the year 1 was a Monday.
        (years + months + self.day - 1) % 7
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

fn is_leap(year: usize) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Days of a month.
fn days_of(year: usize, month: usize) -> usize {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days of a year.
pub(super) fn days_of_year(year: usize) -> usize {
    365 + usize::from(is_leap(year))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leap_years() {
        for (year, leap) in [
            (1900, false),
            (2000, true),
            (1996, true),
            (1998, false),
            (2100, false),
        ] {
            assert_eq!(Date::new(year, 2, 29).is_some(), leap, "{year}");
        }
        assert_eq!(Date::new(1998, 4, 31), None);
        assert_eq!(Date::new(1998, 13, 1), None);
        assert_eq!(Date::new(1998, 1, 0), None);
    }

    #[test]
    fn weekdays_that_are_known() {
        for (date, weekday) in [
            ((1998, 5, 3), 6),
            ((2000, 2, 29), 1),
            ((1969, 7, 20), 6),
            ((2024, 1, 1), 0),
        ] {
            let (year, month, day) = date;
            assert_eq!(
                Date::new(year, month, day).unwrap().weekday(),
                weekday,
                "{date:?}"
            );
        }
    }

    #[test]
    fn days_follow_each_other() {
        let mut last = Date::after(1899, 364);
        assert_eq!(last.to_string(), "1899-12-31");
        for days in 0..40_000 {
            let date = Date::after(1900, days);
            assert!(date > last, "{last} {date}");
            assert_eq!(date.weekday(), (last.weekday() + 1) % 7);
            assert_eq!(Date::new(date.year, date.month, date.day), Some(date));
            last = date;
        }
        // 1900 to 2008 has 27 leap years; 40,000 days are 109 years and 188 days.
        assert_eq!(last.to_string(), "2009-07-07");
    }
}
