//! Durations and sizes.

use lacquer_params::number::unit_seconds;

/// The longest duration in seconds, about 30 years.
const LONGEST: f64 = 1e9;
/// The largest size in bytes.
const LARGEST: f64 = (256 << 20) as f64;

const SIZES: [(&str, f64); 4] = [("", 1.0), ("b", 1.0), ("k", 1024.0), ("m", 1_048_576.0)];

/// Parses a duration such as `1.5m`.
pub fn duration(word: &str) -> Result<f64, String> {
    let seconds = scaled(word, unit_seconds).filter(|seconds| (-LONGEST..=LONGEST).contains(seconds));
    seconds.ok_or_else(|| {
        format!("`{word}` is not a duration; write a number with a unit: ms, s, m, h, d, w or y")
    })
}

/// Parses a size such as `100k`.
pub fn size(word: &str) -> Result<usize, String> {
    let bytes =
        scaled(&word.to_ascii_lowercase(), unit_bytes).filter(|bytes| (0.0..=LARGEST).contains(bytes));
    bytes.map(|bytes| bytes as usize).ok_or_else(|| {
        format!("`{word}` is not a size; write a number of bytes, with k or m behind it, up to 256m")
    })
}

fn unit_bytes(unit: &str) -> Option<f64> {
    SIZES.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes)
}

fn scaled(word: &str, factor: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let unit = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
    let (number, unit) = word.split_at(unit);
    Some(number.parse::<f64>().ok()? * factor(unit)?)
}
