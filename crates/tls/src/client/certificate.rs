//! A client's certificate, whose facts are read when VCL asks for them.

use std::fmt::Write as _;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::leaf;
use crate::name;

/// Bytes of a certificate in a line of PEM.
const PEM_LINE: usize = 64;

/// The certificate that a client has sent, which was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    der: Box<[u8]>,
}

impl ClientCertificate {
    pub fn new(der: &[u8]) -> ClientCertificate {
        ClientCertificate { der: der.into() }
    }

    /// Returns the distinguished name of the holder, in the form of RFC 4514.
    pub fn subject(&self) -> Option<String> {
        leaf::parts(&self.der).map(|parts| name::format(parts.subject))
    }

    /// Returns the first common name of the holder.
    pub fn common_name(&self) -> Option<String> {
        leaf::common_name(leaf::parts(&self.der)?.subject)
    }

    /// Returns the distinguished name of the authority that has signed it, in the form of RFC 4514.
    pub fn issuer(&self) -> Option<String> {
        leaf::parts(&self.der).map(|parts| name::format(parts.issuer))
    }

    /// Returns the serial number in hexadecimal digits, as OpenSSL prints it.
    pub fn serial(&self) -> Option<String> {
        let number = leaf::parts(&self.der)?.serial.content;
        let zeros = number.iter().take_while(|&&byte| byte == 0).count();
        let significant = if zeros == number.len() { number } else { &number[zeros..] };
        Some(hex(significant).to_ascii_uppercase())
    }

    /// Returns the SHA-256 digest of the certificate in hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        hex(digest::digest(&digest::SHA256, &self.der).as_ref())
    }

    /// Returns the first and the last moment at which it is valid, in seconds since the epoch.
    pub fn validity(&self) -> Option<(i64, i64)> {
        leaf::validity(&leaf::parts(&self.der)?)
    }

    /// Returns whether it is valid at this moment. One whose validity cannot be read is not.
    pub fn is_valid_at(&self, now: f64) -> bool {
        self.validity().is_some_and(|(begin, end)| begin as f64 <= now && now < end as f64 + 1.0)
    }

    /// Returns it in the form of PEM.
    pub fn pem(&self) -> String {
        let text = STANDARD.encode(&self.der);
        let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, others) = rest.split_at(rest.len().min(PEM_LINE));
            pem += line;
            pem.push('\n');
            rest = others;
        }
        pem + "-----END CERTIFICATE-----\n"
    }

    /// Returns it as the value of the field `Client-Cert` (RFC 9440).
    pub fn header_value(&self) -> String {
        format!(":{}:", STANDARD.encode(&self.der))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SerialNumber, date_time_ymd};

    use super::*;

    #[test]
    fn vectors_of_rfc_4648() {
        for (plain, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(STANDARD.encode(plain), encoded);
        }
        assert_eq!(STANDARD.encode([0xfb, 0xff, 0xfe]), "+//+");
        assert_eq!(STANDARD.encode([0xff, 0xef, 0xfe]), "/+/+");
    }

    #[test]
    fn facts() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.serial_number = Some(SerialNumber::from(vec![0x00, 0xab, 0x01]));
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2030, 1, 1));
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let certificate = ClientCertificate::new(made.der());
        assert_eq!(certificate.common_name().as_deref(), Some("alice"));
        let subject = certificate.subject().unwrap();
        assert!(subject.contains("CN=alice") && subject.contains(r"O=Example\, Inc."), "{subject}");
        assert_eq!(certificate.issuer(), certificate.subject());
        assert_eq!(certificate.serial().as_deref(), Some("AB01"));
        assert_eq!(certificate.fingerprint().len(), 64);
        assert_eq!(certificate.validity(), Some((1_577_836_800, 1_893_456_000)));
        assert!(certificate.is_valid_at(1_893_456_000.5) && !certificate.is_valid_at(1_893_456_001.0));
        assert!(!certificate.is_valid_at(1_577_836_799.0));
        assert_eq!(certificate.pem().replace('\n', ""), made.pem().replace(['\r', '\n'], ""));
        assert!(certificate.pem().lines().all(|line| line.len() <= PEM_LINE));
        let value = certificate.header_value();
        assert_eq!(STANDARD.encode(made.der()), value.trim_matches(':'));
    }

    #[test]
    fn bytes_that_are_no_certificate_have_no_facts() {
        let junk = ClientCertificate::new(b"\x30\x03\x30\x01\x02");
        assert_eq!((junk.subject(), junk.issuer(), junk.serial(), junk.validity()), (None, None, None, None));
        assert!(!junk.is_valid_at(1e9));
    }
}
