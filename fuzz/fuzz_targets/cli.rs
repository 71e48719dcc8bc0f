//! Any input of the management port becomes commands or errors, and the line of a client that has not logged in stays
//! short.
#![no_main]

use lacquer_cli::collector::Collector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let authenticated = first & 1 == 1;
    let mut collector = Collector::default();
    for &byte in rest {
        if let Some(command) = collector.feed(byte, authenticated) {
            // A replacement character has three bytes.
            assert!(authenticated || command.line.len() <= 3 * 81, "{}", command.line.len());
        }
    }
    let _ = collector.unfinished();
});
