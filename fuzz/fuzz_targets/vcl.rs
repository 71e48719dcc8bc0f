//! Any text is a program or has an error that can be printed.
#![no_main]

use lacquer_vcl::{NoFiles, NumericResolver, Options, Severity, compile, lint, vcl_load_text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut options = Options::new(lacquer_vmods::catalogue(), &NoFiles, &NumericResolver);
    options.max_errors = 3;
    // Leave out the built-in VCL, which would take most of the time and is the same in every run.
    options.builtin = Some("");
    let shown = match compile("fuzz", bytes, &options) {
        Ok(mut compiled) => {
            compiled.warnings.extend(lint(&compiled.program));
            compiled.warnings
        }
        Err(found) => {
            assert!(found.iter().any(|d| d.severity == Severity::Error));
            found
        }
    };
    let _ = vcl_load_text(&shown);
    for diagnostic in &shown {
        let _ = diagnostic.pretty();
    }
});
