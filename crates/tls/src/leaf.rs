//! The facts of a server's certificate (RFC 5280) that its choice, its list and its log records need.

use crate::der::{Element, Reader, tag};

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];
/// The tag of the key's identifier in the extension.
const KEY_ID: u8 = 0x80;
const VERSION: u8 = 0xa0;
const ISSUER_ID: u8 = 0x81;
const SUBJECT_ID: u8 = 0x82;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;

/// Facts of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    subject: Option<String>,
    names: Vec<String>,
    not_before: i64,
    not_after: i64,
}

impl Leaf {
    /// Returns the first common name of the subject.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// Returns the names of the servers that the certificate is for, in lower case: the DNS names among its alternative
    /// names, or otherwise its common name.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the first moment at which it is valid, in seconds since the epoch.
    pub fn not_before(&self) -> i64 {
        self.not_before
    }

    /// Returns the last moment at which it is valid, in seconds since the epoch.
    pub fn not_after(&self) -> i64 {
        self.not_after
    }
}

/// The parts of a certificate in DER, before they are interpreted.
pub struct Parts<'a> {
    pub serial: Element<'a>,
    pub issuer: Element<'a>,
    validity: Element<'a>,
    pub subject: Element<'a>,
    key: Element<'a>,
    extensions: Option<Element<'a>>,
}

/// Splits a certificate in DER. Returns `None` if it is malformed.
pub fn parts(certificate: &[u8]) -> Option<Parts<'_>> {
    let mut outer = Reader::new(certificate);
    let whole = outer.expect(tag::SEQUENCE)?;
    if !outer.is_empty() {
        return None;
    }
    let mut signed = whole.inside().expect(tag::SEQUENCE)?.inside();
    signed.optional(VERSION);
    let serial = signed.expect(tag::INTEGER)?;
    let (_algorithm, issuer) = (signed.next()?, signed.next()?);
    let validity = signed.expect(tag::SEQUENCE)?;
    let subject = signed.expect(tag::SEQUENCE)?;
    let key = signed.expect(tag::SEQUENCE)?;
    signed.optional(ISSUER_ID);
    signed.optional(SUBJECT_ID);
    Some(Parts { serial, issuer, validity, subject, key, extensions: signed.optional(EXTENSIONS) })
}

/// Returns the public key of a certificate: its SubjectPublicKeyInfo in DER.
pub fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    Some(parts(certificate)?.key.whole)
}

/// Reads the facts of a certificate in DER.
pub fn read(certificate: &[u8]) -> Result<Leaf, String> {
    let parts = parts(certificate).ok_or("it is not an X.509 certificate")?;
    let (not_before, not_after) = validity(&parts).ok_or("its period of validity cannot be read")?;
    let subject = common_name(parts.subject);
    let mut names = match parts.extensions.and_then(alternative_names) {
        Some(list) => dns_names(list)?,
        None => Vec::new(),
    };
    if names.is_empty() {
        names.extend(subject.clone());
    }
    if let Some(bad) = names.iter().find(|name| !name.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(format!("its name {bad:?} has a byte that no name of a host has"));
    }
    for name in &mut names {
        name.make_ascii_lowercase();
    }
    Ok(Leaf { subject, names, not_before, not_after })
}

/// Returns the first and the last moment at which a certificate is valid, in seconds since the epoch.
pub fn validity(parts: &Parts<'_>) -> Option<(i64, i64)> {
    let mut times = parts.validity.inside();
    let mut time = || times.next().and_then(seconds);
    Some((time()?, time()?))
}

/// Returns the first common name of a holder.
pub fn common_name(subject: Element<'_>) -> Option<String> {
    let mut sets = subject.inside();
    while let Some(set) = sets.expect(tag::SET) {
        let mut attributes = set.inside();
        while let Some(attribute) = attributes.expect(tag::SEQUENCE) {
            let mut fields = attribute.inside();
            if fields.expect(tag::OID)?.content == COMMON_NAME {
                return text(fields.next()?);
            }
        }
    }
    None
}

/// Returns a string of any of the types that names use.
pub fn text(value: Element<'_>) -> Option<String> {
    let units = |width: usize| value.content.chunks_exact(width);
    match value.tag {
        tag::UTF8_STRING | tag::PRINTABLE_STRING | tag::IA5_STRING => {
            Some(String::from_utf8_lossy(value.content).into_owned())
        }
        tag::T61_STRING => Some(value.content.iter().map(|byte| char::from(*byte)).collect()),
        tag::BMP_STRING => {
            let units: Vec<u16> = units(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            Some(String::from_utf16_lossy(&units))
        }
        tag::UNIVERSAL_STRING => {
            units(4).map(|u| char::from_u32(u32::from_be_bytes([u[0], u[1], u[2], u[3]]))).collect()
        }
        _ => None,
    }
}

/// Returns the identifier of the authority's key and the serial number of a certificate in DER.
pub fn renewal_id(certificate: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let parts = parts(certificate)?;
    let key = extension(parts.extensions?, AUTHORITY_KEY_ID)?.inside().expect(KEY_ID)?;
    Some((key.content.to_vec(), parts.serial.content.to_vec()))
}

/// Returns the extension with the alternative names, as a list of names.
fn alternative_names(extensions: Element<'_>) -> Option<Element<'_>> {
    extension(extensions, SUBJECT_ALT_NAME)
}

/// Returns the value of an extension, which is a sequence.
fn extension<'a>(extensions: Element<'a>, id: &[u8]) -> Option<Element<'a>> {
    let mut all = extensions.inside().expect(tag::SEQUENCE)?.inside();
    while let Some(extension) = all.expect(tag::SEQUENCE) {
        let mut fields = extension.inside();
        let is_it = fields.expect(tag::OID)?.content == id;
        fields.optional(tag::BOOLEAN);
        let value = fields.expect(tag::OCTET_STRING)?;
        if is_it {
            return value.inside().expect(tag::SEQUENCE);
        }
    }
    None
}

fn dns_names(list: Element<'_>) -> Result<Vec<String>, String> {
    let (mut names, mut list) = (Vec::new(), list.inside());
    while !list.is_empty() {
        let name = list.next().ok_or("its alternative names cannot be read")?;
        if name.tag == DNS_NAME {
            names.push(name.content.iter().map(|byte| char::from(*byte)).collect());
        }
    }
    Ok(names)
}

/// Converts a time to seconds since the epoch.
pub fn seconds(time: Element<'_>) -> Option<i64> {
    let digits = time.content.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |text: &[u8]| text.iter().fold(0, |n, digit| n * 10 + i64::from(digit - b'0'));
    let (year, rest) = match time.tag {
        tag::UTC_TIME if digits.len() == 12 => {
            let year = number(&digits[..2]);
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        tag::GENERALIZED_TIME if digits.len() == 14 => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let field = |at: usize| number(&rest[2 * at..2 * at + 2]);
    let (month, day, hour, minute, second) = (field(0), field(1), field(2), field(3), field(4));
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    (is_date && hour < 24 && minute < 60 && second < 61)
        .then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Returns the days from the epoch to a date. Years begin in March, so that a leap day is the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days_before = (153 * month + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + days_before - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let utc = |text: &str| seconds(Element { tag: tag::UTC_TIME, content: text.as_bytes(), whole: &[] });
        assert_eq!(utc("700101000000Z"), Some(0));
        assert_eq!(utc("260228235959Z"), Some(1_772_323_199));
        assert_eq!(utc("240229000000Z"), Some(1_709_164_800));
        assert_eq!(utc("491231235959Z"), Some(2_524_607_999));
        assert_eq!(utc("241301000000Z"), None);
        assert_eq!(utc("2413"), None);
        let long = |text: &str| {
            seconds(Element { tag: tag::GENERALIZED_TIME, content: text.as_bytes(), whole: &[] })
        };
        assert_eq!(long("20760626071638Z"), Some(3_360_381_398));
        assert_eq!(long("99991231235959Z"), Some(253_402_300_799));
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        for bytes in [&b""[..], b"\x30\x00", b"\x30\x03\x30\x01\x02", &[0x30; 4000]] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
