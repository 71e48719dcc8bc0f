//! The first messages of a client lead to a choice of a certificate, an answer or an alert, and to a fingerprint in printable
//! characters.
#![no_main]

use libfuzzer_sys::fuzz_target;

const PEM: &[u8] = include_bytes!("../seeds/tls_files/pair.pem");

fuzz_target!(|bytes: &[u8]| {
    if let Some(fingerprint) = lacquer_tls::ja3(bytes) {
        assert!(fingerprint.bytes().all(|b| b.is_ascii_digit() || matches!(b, b',' | b'-')), "{fingerprint}");
    }
    lacquer_tls::fuzzing::hello(&PEM[1..], bytes);
});
