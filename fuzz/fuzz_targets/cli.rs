//! Whatever a client sends to the management port becomes commands or complaints, and a stranger's line
//! stays short.
#![no_main]

use lacquer_cli::collector::Collector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let authenticated = first & 1 == 1;
    let mut collector = Collector::default();
    for &byte in rest {
        if let Some(command) = collector.feed(byte, authenticated) {
            // A replaced byte takes three.
            assert!(authenticated || command.line.len() <= 3 * 81, "{}", command.line.len());
        }
    }
    let _ = collector.unfinished();
});
