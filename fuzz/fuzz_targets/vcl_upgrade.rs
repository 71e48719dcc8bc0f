//! Any old text is refused or rewritten.
#![no_main]

use lacquer_tools::upgrade;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = upgrade("fuzz", bytes) {
        assert!(!error.pretty().is_empty());
    }
});
