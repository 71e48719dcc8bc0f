//! Numbers for people, of at most eight characters.

/// Returns a number: `999`, `12.3k`, `4.56M`.
pub fn number(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G", "T", "P"])
}

/// Returns a number of bytes: `512 B`, `1.50 kB`.
pub fn bytes(value: f64) -> String {
    scaled(value, 1000.0, &[" B", " kB", " MB", " GB", " TB", " PB"])
}

/// Returns a part of a whole in percent; a dash if there is none.
pub fn percent(part: Option<f64>) -> String {
    match part {
        None => "-".to_owned(),
        // Not all is never shown as all.
        Some(part) if part < 1.0 => format!("{:.1} %", (part * 1000.0).floor() / 10.0),
        Some(part) => format!("{:.0} %", part.min(9.99) * 100.0),
    }
}

/// Returns a duration; a dash if there is none.
pub fn duration(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(s) if s.is_nan() || s < 0.0 => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(s) if s < 0.001 => format!("{:.0}us", (s * 1e6).min(999.0)),
        Some(s) if s < 0.01 => format!("{:.1}ms", (s * 1e3).min(9.9)),
        Some(s) if s < 1.0 => format!("{:.0}ms", (s * 1e3).min(999.0)),
        Some(s) if s < 10.0 => format!("{:.1}s", s.min(9.9)),
        Some(s) if s < 600.0 => format!("{s:.0}s"),
        Some(s) if s < 36_000.0 => format!("{:.0}min", s / 60.0),
        Some(s) if s < 864_000.0 => format!("{:.0}h", s / 3600.0),
        Some(s) => format!("{:.0}d", (s / 86_400.0).min(99_999.0)),
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    if !value.is_finite() || value < 0.0 {
        return "-".to_owned();
    }
    let mut value = value.min(999e15);
    let mut at = 0;
    while value >= step * 0.9995 && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    let digits = match value {
        v if v >= 100.0 || v == 0.0 || at == 0 && v.fract() == 0.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{}", units[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 7.0, 0.5, 999.0, 999.9, 12_345.0, 4_560_000.0, 1e30, f64::NAN].map(number);
        assert_eq!(texts[..7], ["0", "7", "0.50", "999", "1.00k", "12.3k", "4.56M"]);
        assert_eq!(texts[7..], ["999P", "-"]);
        assert_eq!(bytes(1500.0), "1.50 kB");
        assert_eq!(
            [None, Some(0.99999), Some(1.0), Some(0.0)].map(percent),
            ["-", "99.9 %", "100 %", "0.0 %"]
        );
        let texts =
            [0.0, 0.000_12, 0.0012, 0.25, 0.9999, 9.99, 75.0, 4000.0, 1e5, 1e9].map(|s| duration(Some(s)));
        assert_eq!(texts[..5], ["0", "120us", "1.2ms", "250ms", "999ms"]);
        assert_eq!(texts[5..], ["9.9s", "75s", "67min", "28h", "11574d"]);
        assert_eq!([None, Some(f64::NAN)].map(duration), ["-", "-"]);
    }
}
