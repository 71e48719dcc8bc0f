//! The signature itself: keys, scope and time, and how they sign the canonical form of a request.

use lacquer_http::date::Civil;
use sha2::{Digest, Sha256};

use crate::digest::{hex, hmac};

pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The hash of a body that is not signed.
pub(super) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// The hash of an empty body.
pub(crate) const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// The end of the year 9999, the last with four digits.
const LAST_SECOND: f64 = 253_402_300_799.0;

/// The keys of an account. They are never shown.
pub(crate) struct Keys {
    pub access_key: String,
    secret_key: Vec<u8>,
    pub token: Option<String>,
}

/// Returns a text that consists of visible ASCII characters, except for `forbidden` ones.
fn visible(name: &str, text: &[u8], forbidden: &[u8]) -> Result<String, String> {
    if text.is_empty() {
        return Err(format!("{name} is empty"));
    }
    match text.iter().find(|b| !b.is_ascii_graphic() || forbidden.contains(b)) {
        None => Ok(String::from_utf8_lossy(text).into_owned()),
        Some(b'\n' | b'\r' | b' ' | b'\t') => Err(format!(
            "{name} contains a space or the end of a line; remove it, for example by regsuball({name}, \"\\s\", \"\")"
        )),
        Some(b) => Err(format!("{name} contains the byte 0x{b:02x}, which is not allowed there")),
    }
}

impl Keys {
    /// Checks the keys. An empty token is none.
    pub fn new(access_key: &[u8], secret_key: &[u8], token: &[u8]) -> Result<Keys, String> {
        Ok(Keys {
            access_key: visible("access_key", access_key, b"/,")?,
            secret_key: visible("secret_key", secret_key, b"")?.into_bytes(),
            token: if token.is_empty() { None } else { Some(visible("session_token", token, b"")?) },
        })
    }
}

/// The region and the service that a signature is for.
pub(crate) struct Scope {
    pub region: String,
    pub service: String,
}

impl Scope {
    pub fn new(region: &[u8], service: &[u8]) -> Result<Scope, String> {
        Ok(Scope { region: visible("region", region, b"/,")?, service: visible("service", service, b"/,")? })
    }
}

/// A time as `20130524T000000Z`.
pub(super) struct Timestamp(String);

impl Timestamp {
    /// Converts seconds since the epoch. Fails if the clock cannot be right.
    pub fn of(time: f64) -> Result<Timestamp, String> {
        if !(0.0..=LAST_SECOND).contains(&time) {
            return Err(format!(
                "the clock shows {time:.0} seconds since 1970, which cannot be signed; set it"
            ));
        }
        let at = Civil::at(time as i64);
        let (year, month, day) = (at.year, at.month, at.day);
        let (hour, minute, second) = (at.hour, at.minute, at.second);
        Ok(Timestamp(format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")))
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    fn day(&self) -> &str {
        &self.0[..8]
    }
}

/// The parts of a request in their canonical form.
pub(super) struct Canonical<'c> {
    pub method: &'c [u8],
    pub path: &'c [u8],
    pub query: &'c [u8],
    /// Names in lower case with their values, in the order of the names.
    pub headers: &'c [(String, Vec<u8>)],
    pub payload: &'c str,
}

impl Canonical<'_> {
    /// Returns the list of signed headers.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        names.join(";")
    }

    fn text(&self) -> Vec<u8> {
        let mut out = [self.method, self.path, self.query].join(&b'\n');
        out.push(b'\n');
        for (name, value) in self.headers {
            out.extend_from_slice(&[name.as_bytes(), b":", value, b"\n"].concat());
        }
        out.extend_from_slice(format!("\n{}\n{}", self.names(), self.payload).as_bytes());
        out
    }
}

/// A signature that can be computed: the time, and who signs for what.
pub(super) struct Signing<'k> {
    pub keys: &'k Keys,
    pub scope: &'k Scope,
    pub time: Timestamp,
}

impl Signing<'_> {
    fn scope_text(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.time.day(), self.scope.region, self.scope.service)
    }

    pub fn credential(&self) -> String {
        format!("{}/{}", self.keys.access_key, self.scope_text())
    }

    /// Returns the signature in hexadecimal digits.
    pub fn signature(&self, request: &Canonical<'_>) -> String {
        let sha256 = |key: &[u8], message: &[u8]| hmac::<Sha256, 64>(key, message);
        let mut key = sha256(&[b"AWS4", &self.keys.secret_key[..]].concat(), self.time.day().as_bytes());
        for part in [self.scope.region.as_str(), &self.scope.service, "aws4_request"] {
            key = sha256(&key, part.as_bytes());
        }
        let digest = hex(&Sha256::digest(request.text()));
        let head = format!("{ALGORITHM}\n{}\n{}\n", self.time.text(), self.scope_text());
        let signature = hex(&sha256(&key, &[head.as_bytes(), &digest].concat()));
        String::from_utf8_lossy(&signature).into_owned()
    }

    /// Returns the value of the header Authorization.
    pub fn authorization(&self, request: &Canonical<'_>) -> String {
        let (credential, names) = (self.credential(), request.names());
        let signature = self.signature(request);
        format!("{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_cannot_work_are_refused() {
        let table: [(&[u8], &[u8], &[u8], &str); 8] = [
            (b"", b"s", b"", "access_key is empty"),
            (b"a", b"", b"", "secret_key is empty"),
            (b"a/b", b"s", b"", "access_key contains the byte 0x2f, which is not allowed there"),
            (b"a,b", b"s", b"", "access_key contains the byte 0x2c, which is not allowed there"),
            (b"a\0", b"s", b"", "access_key contains the byte 0x00, which is not allowed there"),
            (b"a", b"s\xff", b"", "secret_key contains the byte 0xff, which is not allowed there"),
            (b"a", b"s\n", b"", "secret_key contains a space or the end of a line; remove it"),
            (b"a", b"s", b"t\r\nX: y", "session_token contains a space or the end of a line; remove it"),
        ];
        for (access_key, secret_key, token, why) in table {
            let found = Keys::new(access_key, secret_key, token).err().expect("they are refused");
            assert!(found.starts_with(why), "{found}");
        }
        assert!(Keys::new(b"a", b"s+/=", b"t+/=").is_ok());
        assert_eq!(Scope::new(b"", b"s3").err().expect("no region"), "region is empty");
        assert!(Scope::new(b"eu/x", b"s3").is_err() && Scope::new(b"eu", b"s3\n").is_err());
    }

    #[test]
    fn times_have_four_digits_of_a_year_that_can_be_now() {
        let text = |time| Timestamp::of(time).map(|t| t.0);
        assert_eq!(text(1_369_353_600.0).as_deref(), Ok("20130524T000000Z"));
        assert_eq!(text(0.9).as_deref(), Ok("19700101T000000Z"));
        assert_eq!(text(LAST_SECOND).as_deref(), Ok("99991231T235959Z"));
        for bad in [-1.0, -1e30, LAST_SECOND + 1.0, f64::NAN, f64::INFINITY] {
            assert!(text(bad).is_err(), "{bad}");
        }
        assert_eq!(
            text(-86400.0).expect_err("before 1970"),
            "the clock shows -86400 seconds since 1970, which cannot be signed; set it"
        );
    }
}
