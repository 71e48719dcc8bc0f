//! Parses the text of a parameter into its field and checks its bounds.

use crate::number::{parse_bytes, parse_decimal, parse_duration, show_bytes};
use crate::spec::Kind;
use crate::tokenize::{Rules, split};
use crate::value::{PoolParam, SlotMut};
use crate::{bits, clients};

/// The current bounds as text, with their reasons.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds<'a> {
    /// Lower bound.
    pub min: Option<&'a str>,
    /// Upper bound.
    pub max: Option<&'a str>,
    /// The reason for the lower bound.
    pub min_reason: Option<&'a str>,
    /// The reason for the upper bound.
    pub max_reason: Option<&'a str>,
}

/// Parses `on`, `off` and their synonyms.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "off" | "disable" | "no" | "false" => Ok(false),
        "on" | "enable" | "yes" | "true" => Ok(true),
        _ => Err("use \"on\" or \"off\"\n".to_owned()),
    }
}

/// Parses the whole text like C's strtoul with base 0. A negative number wraps around, so that -1 is
/// `unlimited`. Returns `None` if the number is too large.
fn parse_count(text: &str) -> Option<u32> {
    let text = text.trim_ascii_start();
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let value = u32::from_str_radix(digits, radix).ok()?;
    Some(if negative { value.wrapping_neg() } else { value })
}

fn count(text: &str, bounds: Bounds<'_>) -> Result<u32, String> {
    let value = if text.eq_ignore_ascii_case("unlimited") {
        u32::MAX
    } else {
        parse_count(text).ok_or_else(|| format!("Not a number ({text})\n"))?
    };
    let reason = |why: Option<&str>| why.map(|r| format!(" ({r})")).unwrap_or_default();
    if let Some(min) = bounds.min
        && parse_count(min).is_some_and(|m| value < m)
    {
        return Err(format!("Must be at least {min}{}\n", reason(bounds.min_reason)));
    }
    if let Some(max) = bounds.max
        && (max != "unlimited" && parse_count(max).is_some_and(|m| value > m))
    {
        return Err(format!("Must be no more than {max}{}\n", reason(bounds.max_reason)));
    }
    Ok(value)
}

type ParseNumber = fn(&str) -> Result<f64, &'static str>;

fn number(text: &str, bounds: Bounds<'_>, parse: ParseNumber) -> Result<f64, String> {
    let value = parse(text).map_err(|fault| format!("{fault} ({text})\n"))?;
    if let Some(min) = bounds.min
        && parse(min).is_ok_and(|m| value < m)
    {
        return Err(format!("Must be greater or equal to {min}\n"));
    }
    if let Some(max) = bounds.max
        && parse(max).is_ok_and(|m| value > m)
    {
        return Err(format!("Must be less than or equal to {max}\n"));
    }
    Ok(value)
}

fn size(text: &str, bounds: Bounds<'_>) -> Result<u64, String> {
    let value = parse_bytes(text, None).map_err(|fault| {
        format!("Could not convert to bytes.\n{fault}\n  Try something like '80k' or '120M'\n")
    })?;
    if i64::try_from(value).is_err() {
        return Err(format!("{} is too large for this architecture.\n", show_bytes(value)));
    }
    if let Some(max) = bounds.max
        && parse_bytes(max, None).is_ok_and(|m| value > m)
    {
        return Err(format!("Must be no more than {max}\n\n"));
    }
    if let Some(min) = bounds.min
        && parse_bytes(min, None).is_ok_and(|m| value < m)
    {
        return Err(format!("Must be at least {min}\n"));
    }
    Ok(value)
}

fn pool(text: &str, bounds: Bounds<'_>) -> Result<PoolParam, String> {
    let fields = split(text, Rules::LIST).map_err(|fault| format!("Parse error: {fault}"))?;
    let [min, max, age, ..] = fields.as_slice() else {
        return Err("Three fields required: min_pool, max_pool and max_age\n".to_owned());
    };
    let (min_pool, max_pool) = (count(min, bounds)?, count(max, bounds)?);
    let age_bounds = Bounds { min: Some("0"), max: Some("1000000"), ..Bounds::default() };
    let max_age = number(age, age_bounds, parse_decimal)?;
    if min_pool > max_pool {
        return Err("min_pool cannot be larger than max_pool\n".to_owned());
    }
    Ok(PoolParam { min_pool, max_pool, max_age })
}

/// Assigns `text`. The error is a text for the user; the field is then undefined.
pub fn assign(kind: Kind, field: SlotMut<'_>, text: &str, bounds: Bounds<'_>) -> Result<(), String> {
    match field {
        SlotMut::Flag(field) => *field = parse_bool(text)?,
        SlotMut::Number(field) if kind == Kind::Timeout && text == "never" => *field = f64::INFINITY,
        SlotMut::Number(field) => {
            let parse = if kind == Kind::Double { parse_decimal } else { parse_duration };
            *field = number(text, bounds, parse)?;
        }
        SlotMut::Count(field) if kind == Kind::UintOrZero && text == "0" => *field = 0,
        SlotMut::Count(_) if kind == Kind::Natural && text.trim_ascii_start().starts_with('-') => {
            return Err(format!("Must be at least {}\n", bounds.min.unwrap_or("0")));
        }
        SlotMut::Count(field) => *field = count(text, bounds)?,
        SlotMut::Size(field) => *field = size(text, bounds)?,
        SlotMut::Text(field) => {
            if kind == Kind::Clients {
                clients::check(text)?;
            }
            text.clone_into(field);
        }
        SlotMut::Pool(field) => *field = pool(text, bounds)?,
        SlotMut::Bits(field) => bits::assign(field, text)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_parsed_like_strtoul() {
        for (text, value) in [
            ("0x10", Some(16)),
            ("010", Some(8)),
            ("+5", Some(5)),
            (" 1", Some(1)),
            ("-1", Some(u32::MAX)),
            ("-0", Some(0)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("1 ", None),
            ("--1", None),
            ("+-1", None),
            ("", None),
            ("-", None),
            ("08", None),
        ] {
            assert_eq!(parse_count(text), value, "{text:?}");
        }
    }
}
