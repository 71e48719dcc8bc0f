//! Formats reals with a single conversion of printf(3): `%e`, `%f`, `%g`, `%a`, with a precision.

/// Returns `None` for any other format.
pub fn format(format: &[u8], x: f64) -> Option<String> {
    let rest = std::str::from_utf8(format).ok()?.strip_prefix('%')?;
    let mut letters = rest.chars();
    let conversion = letters.next_back()?;
    let precision = match letters.as_str().strip_prefix('.') {
        Some("") => Some(0),
        Some(digits) => Some(digits.parse::<usize>().ok().filter(|p| *p <= 4096)?),
        None if letters.as_str().is_empty() => None,
        None => return None,
    };
    let text = match conversion.to_ascii_lowercase() {
        'e' | 'f' | 'g' | 'a' if !x.is_finite() => {
            let name = if x.is_nan() { "nan" } else { "inf" };
            if x.is_sign_negative() { format!("-{name}") } else { name.to_owned() }
        }
        'e' => exponential(x, precision.unwrap_or(6)),
        'f' => format!("{x:.*}", precision.unwrap_or(6)),
        'g' => general(x, precision.unwrap_or(6).max(1)),
        'a' => hexadecimal(x, precision),
        _ => return None,
    };
    Some(if conversion.is_ascii_uppercase() { text.to_ascii_uppercase() } else { text })
}

fn exponential(x: f64, precision: usize) -> String {
    let text = format!("{x:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Returns the shorter of both forms, without trailing zeros.
fn general(x: f64, precision: usize) -> String {
    let text = exponential(x, precision - 1);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let shown: i32 = exponent.parse().unwrap_or(0);
    if shown < -4 || shown >= precision as i32 {
        return format!("{}e{exponent}", trimmed(digits));
    }
    let decimals = (precision as i32 - 1 - shown).max(0) as usize;
    trimmed(&format!("{x:.decimals$}")).to_owned()
}

fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

fn hexadecimal(x: f64, precision: Option<usize>) -> String {
    let bits = x.to_bits();
    let sign = if x.is_sign_negative() { "-" } else { "" };
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut mantissa = bits & ((1 << 52) - 1);
    let mut lead = 1;
    if exponent == -1023 {
        (lead, exponent) = (0, if mantissa == 0 { 0 } else { -1022 });
    }
    let digits = match precision {
        Some(precision) if precision < 13 => {
            let cut = 52 - 4 * precision as u32;
            let whole = lead << 52 | mantissa;
            let half = 1 << (cut - 1);
            let odd = (whole >> cut) & 1;
            let rounded = (whole + half - 1 + odd) >> cut;
            lead = rounded >> (52 - cut);
            mantissa = rounded & ((1 << (52 - cut)) - 1);
            if precision == 0 { String::new() } else { format!(".{mantissa:0precision$x}") }
        }
        Some(precision) => format!(".{mantissa:013x}{}", "0".repeat(precision - 13)),
        None if mantissa == 0 => String::new(),
        None => format!(".{}", format!("{mantissa:013x}").trim_end_matches('0')),
    };
    format!("{sign}0x{lead}{digits}p{exponent:+}")
}

#[cfg(test)]
mod tests {
    fn shown(format: &str, x: f64) -> String {
        super::format(format.as_bytes(), x).unwrap()
    }

    #[test]
    fn formats_match_the_c_library() {
        for (format, x, expected) in [
            ("%f", 1.5, "1.500000"),
            ("%.0f", 2.5, "2"),
            ("%e", 12345.678, "1.234568e+04"),
            ("%.2E", 0.000_123, "1.23E-04"),
            ("%g", 100_000.0, "100000"),
            ("%g", 1_000_000.0, "1e+06"),
            ("%g", 0.0001, "0.0001"),
            ("%g", 0.00001, "1e-05"),
            ("%.3g", 7.256_78, "7.26"),
            ("%g", 0.0, "0"),
            ("%a", 1.0, "0x1p+0"),
            ("%a", 0.1, "0x1.999999999999ap-4"),
            ("%.2a", 0.1, "0x1.9ap-4"),
            ("%A", -10.5, "-0X1.5P+3"),
            ("%f", f64::INFINITY, "inf"),
            ("%F", f64::NAN, "NAN"),
        ] {
            assert_eq!(shown(format, x), expected, "{format} {x}");
        }
        for format in ["", "%", "f", "%d", "%5f", "%.xf", "%f "] {
            assert_eq!(super::format(format.as_bytes(), 1.0), None, "{format}");
        }
    }
}
