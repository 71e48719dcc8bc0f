//! Any text is left alone or formatted; formatting again changes nothing. The formatter itself compares the tokens and
//! comments of its input and output.
#![no_main]

use lacquer_tools::format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match format("fuzz", bytes) {
        Ok(formatted) => {
            let again = format("fuzz", &formatted).map_err(|error| error.pretty());
            assert_eq!(again.as_deref(), Ok(&formatted[..]));
        }
        Err(error) => {
            let text = error.pretty();
            assert!(!text.contains("change of its meaning"), "{text}");
        }
    }
});
