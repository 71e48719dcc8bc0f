//! Any old text is refused or rewritten.
#![no_main]

use lacquer_tools::upgrade;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for sub in [None, Some("vcl_fetch"), Some("vcl_backend_error")] {
        if let Err(error) = upgrade("fuzz", bytes, sub) {
            assert!(!error.pretty().is_empty());
        }
    }
});
