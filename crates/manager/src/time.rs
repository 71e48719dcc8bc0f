//! Points in time as HTTP writes them.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `Sun, 06 Nov 1994 08:49:37 GMT`
pub fn http_date(seconds: f64) -> String {
    let total = seconds.max(0.0) as u64;
    let (days, second) = (total / 86_400, total % 86_400);
    // Days since 0000-03-01, in eras of 400 years: then leap days are always a year's last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::http_date;

    #[test]
    fn dates() {
        assert_eq!(http_date(784_111_777.0), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(951_782_400.0), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http_date(0.0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
