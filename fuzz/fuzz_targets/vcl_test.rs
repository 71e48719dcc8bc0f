//! Any test file is parsed or refused with a line of the file.
#![no_main]

use lacquer_vcl_test::format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match format::parse(bytes) {
        Ok(suite) => assert!(suite.tests.iter().all(|test| test.line > 0)),
        Err(fault) => {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
            assert!((1..=lines).contains(&(fault.line as usize)) && !fault.what.is_empty(), "{fault:?}");
        }
    }
});
