//! Moments as text, in UTC.

/// A moment as Java's `Date` writes it, such as `Thu Jan 01 00:00:00 UTC 1970`.
pub(crate) fn java(ms_since_epoch: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = ms_since_epoch.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!(
        "{} {} {day:02} {:02}:{:02}:{:02} UTC {year:04}",
        DAYS[days.rem_euclid(7) as usize],
        MONTHS[month as usize - 1],
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

/// A moment as ZooKeeper's logging pattern has it (`%d{ISO8601}`), such as `1970-01-01 00:00:00,000`.
pub(crate) fn log4j(ms_since_epoch: i64) -> String {
    let (day, time, ms) = parts(ms_since_epoch);
    format!("{day} {time},{ms:03}")
}

/// A moment as RFC 3339 has it, such as `1970-01-01T00:00:00.000Z`.
pub(crate) fn rfc3339(ms_since_epoch: i64) -> String {
    let (day, time, ms) = parts(ms_since_epoch);
    format!("{day}T{time}.{ms:03}Z")
}

fn parts(ms_since_epoch: i64) -> (String, String, i64) {
    let (seconds, ms) = (ms_since_epoch.div_euclid(1000), ms_since_epoch.rem_euclid(1000));
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    let time = format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    (format!("{year:04}-{month:02}-{day:02}"), time, ms)
}

/// Year, month and day of a day counted from the first of 1970.
///
/// Years are taken to begin in March, so that the leap day is the last day of one, and to come in eras
/// of 400, which all have the same number of days.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468; // from the first of March of the year 0
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_java_does() {
        assert_eq!(java(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(java(951_782_399_999), "Mon Feb 28 23:59:59 UTC 2000");
        assert_eq!(java(951_868_800_000), "Wed Mar 01 00:00:00 UTC 2000");
        assert_eq!(java(1_709_208_000_000), "Thu Feb 29 12:00:00 UTC 2024");
        assert_eq!(java(1_795_298_605_000), "Sat Nov 21 22:03:25 UTC 2026");
        assert_eq!(java(-1), "Wed Dec 31 23:59:59 UTC 1969");
        assert_eq!(log4j(951_782_399_999), "2000-02-28 23:59:59,999");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999Z");
    }
}
