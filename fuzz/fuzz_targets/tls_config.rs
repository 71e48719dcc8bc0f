//! A file of `-A` is parsed, or refused with the number of a line that it has.
#![no_main]

use lacquer_manager::parse_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if let Some(fault) = parse_file(&text) {
        let number = fault.split("line ").nth(1).and_then(|rest| rest.split(':').next());
        let number: usize = number.and_then(|number| number.parse().ok()).expect("a number");
        assert!((1..=text.lines().count().max(1)).contains(&number), "{fault}");
    }
});
