//! When owners are notified: while people are at work, if the cluster manager says when that is.

use coppice_api::notify::{Weekday, WorkingHours};
use jiff::civil::{self, Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

/// Working hours that can be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidHours {
    zone: TimeZone,
    from: Time,
    to: Time,
    days: Vec<civil::Weekday>,
}

/// What is wrong with working hours, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHours {
    /// The time zone is not known.
    #[error("timeZone {0:?} is not known: write a name of the IANA database, such as Europe/Berlin")]
    Zone(String),
    /// A time of day is none.
    #[error("{0:?} is no time of day: write it as 08:00")]
    Time(String),
    /// The end is not after the beginning.
    #[error("from must be before to")]
    Empty,
    /// There are no days.
    #[error("days is empty: write the days on which messages are sent")]
    NoDays,
}

impl TryFrom<&WorkingHours> for ValidHours {
    type Error = InvalidHours;

    fn try_from(hours: &WorkingHours) -> Result<Self, InvalidHours> {
        let WorkingHours { time_zone, from, to, days } = hours;
        let time = |text: &str| {
            // The end of the day, which times of day have not.
            if text == "24:00" {
                return Ok(Time::MAX);
            }
            let parts = text.split_once(':').and_then(|(h, m)| Some((h.parse().ok()?, m.parse().ok()?)));
            let time = parts.and_then(|(hour, minute)| Time::new(hour, minute, 0, 0).ok());
            time.ok_or_else(|| InvalidHours::Time(text.to_owned()))
        };
        let zone = TimeZone::get(time_zone).map_err(|_| InvalidHours::Zone(time_zone.clone()))?;
        let (from, to) = (time(from)?, time(to)?);
        if to <= from {
            return Err(InvalidHours::Empty);
        }
        if days.is_empty() {
            return Err(InvalidHours::NoDays);
        }
        Ok(Self { zone, from, to, days: days.iter().copied().map(civil_day).collect() })
    }
}

impl ValidHours {
    /// When they begin; none if they are now.
    pub fn begin_after(&self, now: Timestamp) -> Option<Timestamp> {
        let local = now.to_zoned(self.zone.clone()).datetime();
        let (today, time) = (local.date(), local.time());
        if self.is_workday(today) && self.from <= time && time < self.to {
            return None;
        }
        // Within a week there is each of the days.
        let days = (0..=7).filter_map(|ahead| today.checked_add(ahead.days()).ok());
        let begins = days.filter(|day| self.is_workday(*day)).filter_map(|day| {
            // A time that a change of the clocks leaves out is the one after it.
            let begin = day.to_datetime(self.from).to_zoned(self.zone.clone()).ok()?;
            Some(begin.timestamp())
        });
        // If the calendar ends before: at once, rather than never.
        begins.into_iter().find(|begin| now < *begin)
    }

    fn is_workday(&self, day: Date) -> bool {
        self.days.contains(&day.weekday())
    }
}

const fn civil_day(day: Weekday) -> civil::Weekday {
    match day {
        Weekday::Monday => civil::Weekday::Monday,
        Weekday::Tuesday => civil::Weekday::Tuesday,
        Weekday::Wednesday => civil::Weekday::Wednesday,
        Weekday::Thursday => civil::Weekday::Thursday,
        Weekday::Friday => civil::Weekday::Friday,
        Weekday::Saturday => civil::Weekday::Saturday,
        Weekday::Sunday => civil::Weekday::Sunday,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(json: &str) -> Result<ValidHours, InvalidHours> {
        ValidHours::try_from(&serde_json::from_str::<WorkingHours>(json).unwrap())
    }

    #[test]
    fn they_begin_in_their_zone_whatever_the_clocks_do() {
        let berlin = hours(r#"{"timeZone": "Europe/Berlin"}"#).unwrap();
        for (now, begins) in [
            // Friday, in winter: one hour ahead of UTC.
            ("2026-03-27T06:59:59Z", Some("2026-03-27T07:00:00Z")),
            ("2026-03-27T07:00:00Z", None),
            ("2026-03-27T16:59:59Z", None),
            // Over the weekend of the change to summer time: two hours ahead.
            ("2026-03-27T17:00:00Z", Some("2026-03-30T06:00:00Z")),
            ("2026-03-29T12:00:00Z", Some("2026-03-30T06:00:00Z")),
            ("2026-03-30T06:00:00Z", None),
        ] {
            let found = berlin.begin_after(now.parse().unwrap());
            assert_eq!(found, begins.map(|begins| begins.parse().unwrap()), "{now}");
        }
        let night =
            hours(r#"{"timeZone": "Europe/Berlin", "from": "02:30", "to": "03:30", "days": ["Sunday"]}"#)
                .unwrap();
        let late =
            hours(r#"{"timeZone": "UTC", "from": "22:00", "to": "24:00", "days": ["Sunday"]}"#).unwrap();
        assert_eq!(late.begin_after("2026-03-29T23:59:59Z".parse().unwrap()), None, "until the day ends");
        // There is no 02:30 on that day.
        let found = night.begin_after("2026-03-28T12:00:00Z".parse().unwrap());
        assert_eq!(found, Some("2026-03-29T01:30:00Z".parse().unwrap()));
    }

    #[test]
    fn what_cannot_be_meant_says_what_to_write() {
        for (json, error) in [
            (
                r#"{"timeZone": "Berlin"}"#,
                "timeZone \"Berlin\" is not known: write a name of the IANA database, such as Europe/Berlin",
            ),
            (
                r#"{"timeZone": "UTC", "from": "8 o'clock"}"#,
                "\"8 o'clock\" is no time of day: write it as 08:00",
            ),
            (r#"{"timeZone": "UTC", "from": "18:00"}"#, "from must be before to"),
            (
                r#"{"timeZone": "UTC", "days": []}"#,
                "days is empty: write the days on which messages are sent",
            ),
        ] {
            assert_eq!(hours(json).unwrap_err().to_string(), error);
        }
    }
}
