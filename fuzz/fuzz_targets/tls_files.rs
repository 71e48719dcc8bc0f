//! Files of certificates, keys, authorities and revocation lists are read or refused, and names of certificates contain no
//! control characters.
#![no_main]

use lacquer_tls::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    if kind & 1 == 0 { fuzzing::files(rest) } else { fuzzing::certificate(rest) }
});
