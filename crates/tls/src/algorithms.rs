//! The algorithms of a certificate (RFC 5280 section 4.1), with their names in OpenSSL, for VCL and logs.

use crate::der::{Element, Reader, tag};

/// The tag of the certificate's version.
const VERSION: u8 = 0xa0;

/// The algorithms of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithms {
    /// The algorithm of its signature, as in `RSA-SHA256`.
    pub signature: String,
    /// The algorithm and size of its key, as in `RSA2048`.
    pub key: String,
}

impl Algorithms {
    /// Reads the algorithms of a certificate in DER. Returns `None` if it is malformed.
    pub fn of(certificate: &[u8]) -> Option<Algorithms> {
        let mut whole = Reader::new(certificate).expect(tag::SEQUENCE)?.inside();
        let mut signed = whole.expect(tag::SEQUENCE)?.inside();
        let signature = whole.expect(tag::SEQUENCE)?.inside().expect(tag::OID)?;
        signed.optional(VERSION);
        for _serial_signature_issuer_validity_subject in 0..5 {
            signed.next()?;
        }
        let mut info = signed.expect(tag::SEQUENCE)?.inside();
        let mut algorithm = info.expect(tag::SEQUENCE)?.inside();
        let kind = algorithm.expect(tag::OID)?;
        let key = info.expect(tag::BIT_STRING)?.content.split_first()?.1;
        let (signature, key) = (signature_name(signature.content), key_name(kind.content, algorithm, key));
        Some(Algorithms { signature, key })
    }
}

/// Returns the name of a signature algorithm in OpenSSL, or its numbers.
fn signature_name(object: &[u8]) -> String {
    match object {
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last] => match last {
            4 => "RSA-MD5",
            5 => "RSA-SHA1",
            10 => "RSASSA-PSS",
            11 => "RSA-SHA256",
            12 => "RSA-SHA384",
            13 => "RSA-SHA512",
            14 => "RSA-SHA224",
            _ => return dotted(object),
        },
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1] => "ecdsa-with-SHA1",
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2] => "ecdsa-with-SHA256",
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3] => "ecdsa-with-SHA384",
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4] => "ecdsa-with-SHA512",
        [0x2b, 0x65, 0x70] => "ED25519",
        [0x2b, 0x65, 0x71] => "ED448",
        _ => return dotted(object),
    }
    .to_owned()
}

/// Returns the algorithm and size of a key.
fn key_name(kind: &[u8], mut parameters: Reader<'_>, key: &[u8]) -> String {
    match kind {
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1 | 10] => {
            let key = Reader::new(key).expect(tag::SEQUENCE).map(Element::inside);
            let modulus = key.and_then(|mut key| key.expect(tag::INTEGER));
            format!("RSA{}", modulus.map_or(0, |modulus| bits(modulus.content)))
        }
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1] => {
            let size = match parameters.expect(tag::OID).map(|curve| curve.content) {
                Some([0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7]) => 256,
                Some([0x2b, 0x81, 4, 0, 34]) => 384,
                Some([0x2b, 0x81, 4, 0, 35]) => 521,
                // An uncompressed point has two coordinates.
                _ => key.len().saturating_sub(1) * 4,
            };
            format!("EC{size}")
        }
        [0x2b, 0x65, 0x70] => "n/a256".to_owned(),
        _ => format!("n/a{}", key.len() * 8),
    }
}

/// Returns the number of bits of a positive integer.
fn bits(integer: &[u8]) -> usize {
    let zeros = integer.iter().take_while(|&&byte| byte == 0).count();
    let Some(first) = integer.get(zeros) else { return 0 };
    (integer.len() - zeros) * 8 - first.leading_zeros() as usize
}

/// Returns the numbers of an object identifier.
pub fn dotted(object: &[u8]) -> String {
    let mut numbers: Vec<u64> = Vec::new();
    let mut number: u64 = 0;
    for &byte in object {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first);
                number -= first * 40;
            }
            numbers.push(std::mem::take(&mut number));
        }
    }
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_objects() {
        assert_eq!(dotted(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d]), "1.2.840.113549");
        assert_eq!(dotted(&[0x67, 0x81, 0x0c]), "2.23.140");
    }

    #[test]
    fn names_of_algorithms() {
        for (algorithm, signature, key) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, "ecdsa-with-SHA256", "EC256"),
            (&rcgen::PKCS_ECDSA_P384_SHA384, "ecdsa-with-SHA384", "EC384"),
            (&rcgen::PKCS_RSA_SHA256, "RSA-SHA256", "RSA2048"),
            (&rcgen::PKCS_ED25519, "ED25519", "n/a256"),
        ] {
            let pair = rcgen::KeyPair::generate_for(algorithm).expect("a key");
            let certificate = rcgen::CertificateParams::default().self_signed(&pair).expect("a certificate");
            let der = certificate.der();
            let expected = Algorithms { signature: signature.to_owned(), key: key.to_owned() };
            assert_eq!(Algorithms::of(der), Some(expected));
            assert!((0..der.len()).all(|n| Algorithms::of(&der[..n]).is_none()));
        }
    }
}
