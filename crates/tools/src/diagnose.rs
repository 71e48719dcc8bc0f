//! What `lacquer check` and editors show of a VCL.

use lacquer_vcl::{Diagnostic, Options, compile, lint};

use crate::braces::unclosed_brace;

/// Compiles a VCL. Returns its errors, or the warnings and lints of a correct one.
pub fn diagnose(name: &str, text: &[u8], options: &Options<'_>) -> Vec<Diagnostic> {
    match compile(name, text, options) {
        Ok(mut compiled) => {
            compiled.warnings.extend(lint(&compiled.program));
            compiled.warnings
        }
        // The others are its consequences.
        Err(errors) => unclosed_brace(name, text, &errors).map_or(errors, |error| vec![error]),
    }
}
