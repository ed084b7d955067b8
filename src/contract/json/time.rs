//! Times as JSON has them: RFC 3339 (JSON-04 to JSON-06).

use std::fmt;

use crate::contract::wkt::Timestamp;

const DAY: i64 = 86_400;

/// Why a text is no time.
pub(super) const NO_TIME: &str =
    "must be a time of the years 1 to 9999, such as 2026-01-31T23:59:59.123Z";

/// Writes a time in UTC with exactly three fraction digits; the rest is cut.
pub(super) struct Written(pub(super) Timestamp);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Timestamp { seconds, nanos } = self.0;
        let (year, month, day) = date_of(seconds.div_euclid(DAY));
        let second = seconds.rem_euclid(DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let milli = nanos / 1_000_000;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

/// Reads a time with up to nine fraction digits and any offset from UTC.
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    let mut at = Cursor(text.as_bytes());
    let (year, month, day) = (at.digits(4)?, at.after(b'-')?, at.after(b'-')?);
    at.is(b'T')?;
    let (hour, minute, second) = (at.digits(2)?, at.after(b':')?, at.after(b':')?);
    let mut nanos = 0;
    if at.is(b'.').is_some() {
        let length = at.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if !(1..=9).contains(&length) {
            return None;
        }
        nanos = (length..9).fold(at.digits(length)?, |nanos, _| nanos * 10);
    }
    let offset = match at.0.split_first()? {
        (b'Z', rest) => {
            at.0 = rest;
            0
        }
        (sign @ (b'+' | b'-'), rest) => {
            at.0 = rest;
            let (hours, minutes) = (at.digits(2)?, at.after(b':')?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'+' { 60 } else { -60 }
        }
        _ => return None,
    };
    let days = days_until(year, month, day);
    let exists = at.0.is_empty() && date_of(days) == (year, month, day);
    if !exists || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days * DAY + hour * 3600 + minute * 60 + second - offset;
    let time = Timestamp { seconds, nanos: i32::try_from(nanos).ok()? };
    time.to_micros().map(|_valid| time)
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn is(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits.iter().try_fold(0, |number, byte| {
            byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'))
        })
    }

    fn after(&mut self, byte: u8) -> Option<i64> {
        self.is(byte)?;
        self.digits(2)
    }
}

/// Days from 1970 until a date of the Gregorian calendar, which need not exist. Years begin in
/// March here, so that the leap day is the last.
fn days_until(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let month = (month + 9) % 12;
    year * 365 + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (month * 153 + 2) / 5
        + (day - 1)
        - 719_468
}

/// The date that is `days` after 1970 began.
fn date_of(days: i64) -> (i64, i64, i64) {
    // Counted from March of the year 0, in cycles of 400 years.
    let days = days + 719_468;
    let (cycle, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (year * 365 + year / 4 - year / 100);
    let month = (day * 5 + 2) / 153;
    let day = day - (month * 153 + 2) / 5 + 1;
    let year = year + cycle * 400;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> Option<i64> {
        parse(text).and_then(Timestamp::to_micros)
    }

    #[test]
    fn times_are_read_with_any_fraction_and_offset() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:00.000000001Z", 0),
            ("1969-12-31T23:59:59.999999Z", -1),
            ("2024-02-29T12:34:56.789Z", 1_709_210_096_789_000),
            ("2024-02-29T14:34:56.7890000+02:00", 1_709_210_096_789_000),
            ("2024-02-29T00:04:56.789-12:30", 1_709_210_096_789_000),
            ("2024-02-29T12:34:56.789-00:00", 1_709_210_096_789_000),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
            ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
        ] {
            assert_eq!(micros(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2024",
            "2024-02-29",
            "2024-02-29 12:34:56Z",
            "2024-02-29t12:34:56Z",
            "2024-02-29T12:34:56z",
            "2024-02-29T12:34:56",
            "2024-02-29T12:34Z",
            "2023-02-29T12:34:56Z",
            "2024-13-01T12:34:56Z",
            "2024-00-01T12:34:56Z",
            "2024-01-00T12:34:56Z",
            "2024-01-32T12:34:56Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:60:00Z",
            "2024-01-01T00:00:60Z",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00.0000000000Z",
            "2024-01-01T00:00:00+0100",
            "2024-01-01T00:00:00+24:00",
            "2024-01-01T00:00:00+01:60",
            "2024-01-01T00:00:00Zx",
            "0000-12-31T23:59:59Z",
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "+2024-01-01T00:00:00Z",
            "20240101T000000Z",
            "２024-01-01T00:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_has_one_name() {
        let first = days_until(1, 1, 1);
        let mut before = date_of(first - 1);
        for days in first..days_until(10_000, 1, 1) {
            let date = date_of(days);
            assert_eq!(days_until(date.0, date.1, date.2), days);
            assert!(before < date && (1..=12).contains(&date.1) && (1..=31).contains(&date.2));
            before = date;
        }
        assert_eq!(before, (9999, 12, 31));
    }

    #[test]
    fn times_are_written_with_three_digits() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (1_709_210_096_789_999, "2024-02-29T12:34:56.789Z"),
        ] {
            assert_eq!(Written(Timestamp::from_micros(micros)).to_string(), text);
        }
    }
}
