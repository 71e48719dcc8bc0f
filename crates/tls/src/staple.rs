//! Responses of an authority's OCSP server (RFC 6960), as far as stapling needs them: which certificate a response is
//! about, what it says, and until when. Its signature is for clients to check.

use crate::der::{Element, Reader, tag};
use crate::leaf::seconds;

const ENUMERATED: u8 = 0x0a;
/// 1.3.6.1.5.5.7.48.1.1
const BASIC_RESPONSE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
/// The tag of the response in its envelope, of a version, and of the time of the next update.
const FIELD_0: u8 = 0xa0;
const GOOD: u8 = 0x80;
const REVOKED: u8 = 0xa1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Good,
    Revoked,
    Unknown,
}

/// The statement about a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    verdict: Verdict,
    until: Option<i64>,
}

impl Statement {
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns the last moment at which it is valid, in seconds since the epoch, if it names one.
    pub fn until(&self) -> Option<i64> {
        self.until
    }

    /// Returns whether clients get it at this time: it would make them refuse the certificate otherwise.
    pub fn serves_at(&self, now: f64) -> bool {
        self.verdict == Verdict::Good && self.until.is_none_or(|until| now <= until as f64)
    }
}

/// Returns the statement of a response about the certificate with this serial number. The error says why there is none.
pub fn read(response: &[u8], serial: &[u8]) -> Result<Statement, String> {
    let mut outer = Reader::new(response);
    let mut envelope = outer.expect(tag::SEQUENCE).filter(|_| outer.is_empty()).map(Element::inside);
    let status = envelope.as_mut().and_then(|envelope| envelope.expect(ENUMERATED));
    match (status.map(|status| status.content), envelope) {
        (Some([0]), Some(envelope)) => {
            let all = statements(envelope).ok_or("it is not an OCSP response in DER")?;
            let own = all.into_iter().find(|(about, _)| *about == serial);
            Ok(own.ok_or("it is about another certificate")?.1)
        }
        (Some([status]), _) => Err(format!("it has the status {status}")),
        _ => Err("it is not an OCSP response in DER".to_owned()),
    }
}

/// Returns the serial numbers that a successful response is about, and the statements.
fn statements(mut envelope: Reader<'_>) -> Option<Vec<(&[u8], Statement)>> {
    let mut wrapped = envelope.expect(FIELD_0)?.inside().expect(tag::SEQUENCE)?.inside();
    if wrapped.expect(tag::OID)?.content != BASIC_RESPONSE {
        return None;
    }
    let mut basic = wrapped.expect(tag::OCTET_STRING)?.inside();
    let mut signed = basic.expect(tag::SEQUENCE)?.inside().expect(tag::SEQUENCE)?.inside();
    signed.optional(FIELD_0);
    let _responder = signed.next()?;
    let _produced = signed.expect(tag::GENERALIZED_TIME)?;
    let mut all = Vec::new();
    let mut singles = signed.expect(tag::SEQUENCE)?.inside();
    while !singles.is_empty() {
        all.push(single(singles.expect(tag::SEQUENCE)?)?);
    }
    Some(all)
}

fn single(element: Element<'_>) -> Option<(&[u8], Statement)> {
    let mut fields = element.inside();
    let mut about = fields.expect(tag::SEQUENCE)?.inside();
    about.expect(tag::SEQUENCE)?;
    about.expect(tag::OCTET_STRING)?;
    about.expect(tag::OCTET_STRING)?;
    let serial = about.expect(tag::INTEGER)?.content;
    let verdict = match fields.next()?.tag {
        GOOD => Verdict::Good,
        REVOKED => Verdict::Revoked,
        _ => Verdict::Unknown,
    };
    fields.expect(tag::GENERALIZED_TIME)?;
    let until = match fields.optional(FIELD_0) {
        Some(next) => Some(seconds(next.inside().next()?)?),
        None => None,
    };
    Some((serial, Statement { verdict, until }))
}

/// Creates responses for tests.
#[cfg(test)]
pub mod made {
    use super::*;

    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        assert!(content.len() < 0x10000, "a short element");
        let length = (content.len() as u16).to_be_bytes();
        [&[tag, 0x82, length[0], length[1]][..], &content].concat()
    }

    /// Returns a response about a serial number. `verdict` is an element; `until` a generalized time.
    pub fn response(serial: &[u8], verdict: &[u8], until: Option<&str>) -> Vec<u8> {
        let time = |text: &str| der(tag::GENERALIZED_TIME, &[text.as_bytes()]);
        let (algorithm, hash) = (der(tag::SEQUENCE, &[]), der(tag::OCTET_STRING, &[b"hash"]));
        let about = der(tag::SEQUENCE, &[&algorithm, &hash, &hash, &der(tag::INTEGER, &[serial])]);
        let next = until.map(|text| der(FIELD_0, &[&time(text)])).unwrap_or_default();
        let this = time("20260101000000Z");
        let singles = der(tag::SEQUENCE, &[&der(tag::SEQUENCE, &[&about, verdict, &this, &next])]);
        let signed = der(tag::SEQUENCE, &[&der(0xa2, &[&hash]), &this, &singles]);
        let basic = der(tag::SEQUENCE, &[&signed, &algorithm, &der(tag::BIT_STRING, &[b"\0"])]);
        let kind = der(tag::OID, &[BASIC_RESPONSE]);
        let wrapped = der(tag::SEQUENCE, &[&kind, &der(tag::OCTET_STRING, &[&basic])]);
        der(tag::SEQUENCE, &[&[ENUMERATED, 1, 0], &der(FIELD_0, &[&wrapped])])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_found_by_serial_number() {
        let good = made::response(&[5, 6], &[GOOD, 0], Some("20300101000000Z"));
        let statement = read(&good, &[5, 6]).unwrap();
        assert_eq!((statement.verdict(), statement.until()), (Verdict::Good, Some(1_893_456_000)));
        assert!(statement.serves_at(1_893_456_000.0) && !statement.serves_at(1_893_456_001.0));
        assert_eq!(read(&good, &[5]).unwrap_err(), "it is about another certificate");
        for (verdict, expected) in [(&[REVOKED, 0][..], Verdict::Revoked), (&[0x82, 0], Verdict::Unknown)] {
            let statement = read(&made::response(&[7], verdict, None), &[7]).unwrap();
            assert_eq!((statement.verdict(), statement.until()), (expected, None));
            assert!(!statement.serves_at(0.0));
        }
        assert!(read(&made::response(&[7], &[GOOD, 0], None), &[7]).unwrap().serves_at(1e12));
    }

    #[test]
    fn damaged_responses_are_refused() {
        let good = made::response(&[5], &[GOOD, 0], Some("20300101000000Z"));
        assert_eq!(read(b"\x30\x03\x0a\x01\x06", &[5]).unwrap_err(), "it has the status 6");
        for end in 0..good.len() {
            assert!(read(&good[..end], &[5]).is_err(), "{end}");
        }
        assert!(read(&[&good[..], b"x"].concat(), &[5]).is_err());
        for bad in [&b""[..], b"-----BEGIN", b"\x30\x05\x0a\x01\x00\xa0\x00"] {
            assert_eq!(read(bad, &[5]).unwrap_err(), "it is not an OCSP response in DER", "{bad:?}");
        }
        // Any flipped bit is survived.
        for bit in 0..8 * good.len() {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _ = read(&bytes, &[5]);
        }
    }
}
