//! Figures for people.

/// Returns a number of bytes in a form for people.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..units.len()).rev().find(|&unit| n >= 1 << (10 * unit)).unwrap_or(0);
    let value = n as f64 / (1_u64 << (10 * unit)) as f64;
    if unit == 0 || value >= 100.0 || value == value.trunc() {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// Returns a duration in its largest unit.
pub fn duration(seconds: f64) -> String {
    let units = [("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)];
    let found = units.into_iter().find(|(_, length)| seconds >= 2.0 * length);
    let (name, length) = found.unwrap_or(("seconds", 1.0));
    format!("{:.0} {name}", (seconds / length).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_largest_unit() {
        assert_eq!(
            [0, 1023, 1024, 1536, 100 << 30].map(bytes),
            ["0 B", "1023 B", "1 KiB", "1.5 KiB", "100 GiB"]
        );
        assert_eq!(
            [-1.0, 100.0, 150.0, 1e6].map(duration),
            ["0 seconds", "100 seconds", "2 minutes", "12 days"]
        );
    }
}
