//! `probe name { .url = "/"; ... }`, as a declaration or inside a backend.

use crate::compiler::{Compiler, Res};
use crate::decl_fields::Fields;
use crate::lexer::Tok;
use crate::program::Probe;
use crate::symbols::{Fmt, TokenId};

const FIELDS: &[&str] = &[
    "url",
    "request",
    "expected_response",
    "timeout",
    "interval",
    "window",
    "threshold",
    "initial",
    "expect_close",
];

/// Fields whose checks depend on other fields.
#[derive(Default)]
struct Seen {
    request: Option<TokenId>,
    window: Option<TokenId>,
    threshold: Option<TokenId>,
}

impl Compiler<'_> {
    pub fn parse_probe(&mut self) -> Res<()> {
        self.advance();
        self.want_name("backend probe")?;
        let symbol = self.handle_symbol(Fmt::Probe)?;
        match symbol {
            Some(symbol) => {
                let name = self.symbols.name(symbol).to_owned();
                let probe = self.probe_spec(name)?;
                let index = self.global_index(symbol) as usize;
                self.program.origins.probes[index] = probe;
            }
            None => {
                let probe = self.probe_spec("default".to_owned())?;
                self.defaults.probe = Some(self.program.origins.probes.len() as u32);
                self.program.origins.probes.push(probe);
            }
        }
        Ok(())
    }

    /// Parses `{ .field = value; ... }`.
    pub fn probe_spec(&mut self, name: String) -> Res<Probe> {
        let mut probe = Probe { name, ..Probe::default() };
        let mut fields = Fields::new(FIELDS);
        let mut seen = Seen::default();
        self.skip(Tok::LBrace)?;
        while self.now() != Tok::RBrace {
            let field = self.field(&mut fields)?;
            self.probe_field(field, &mut probe, &mut seen)?;
            self.skip(Tok::Semi)?;
        }
        self.check_window(&mut probe, &seen)?;
        self.skip(Tok::RBrace)?;
        Ok(probe)
    }

    fn probe_field(&mut self, field: TokenId, probe: &mut Probe, seen: &mut Seen) -> Res<()> {
        match self.text(field) {
            "url" => {
                self.only_one("Probe request", &mut seen.request, field)?;
                self.want(Tok::Cstr)?;
                probe.url = Some(self.content(self.t).into());
                self.advance();
            }
            "request" => {
                self.only_one("Probe request", &mut seen.request, field)?;
                self.want(Tok::Cstr)?;
                let mut request = Vec::new();
                while self.now() == Tok::Cstr {
                    request.extend_from_slice(self.content(self.t));
                    request.extend_from_slice(b"\r\n");
                    self.advance();
                }
                request.extend_from_slice(b"\r\n");
                probe.request = Some(request.into());
            }
            "timeout" => probe.timeout = Some(self.duration()?),
            "interval" => probe.interval = Some(self.duration()?),
            "window" => {
                seen.window = Some(self.t);
                probe.window = Some(self.uint()? as u32);
            }
            "threshold" => {
                seen.threshold = Some(self.t);
                probe.threshold = Some(self.uint()? as u32);
            }
            "initial" => probe.initial = Some(self.uint()? as u32),
            "expected_response" => {
                let status = self.uint();
                if !status.as_ref().is_ok_and(|s| (100..=999).contains(s)) {
                    let message =
                        "Must specify .expected_response with exactly three digits (100 <= x <= 999)\n";
                    return self.fail(message, self.t);
                }
                probe.expected_response = Some(status? as u32);
            }
            _ => probe.expect_close = Some(self.truth()?),
        }
        Ok(())
    }

    fn check_window(&mut self, probe: &mut Probe, seen: &Seen) -> Res<()> {
        match (seen.window, seen.threshold) {
            (None, None) => return Ok(()),
            (Some(window), None) => return self.fail("Must specify .threshold with .window\n", window),
            (None, Some(threshold)) => {
                let value = probe.threshold.unwrap_or(0);
                if value > 64 {
                    return self.fail("Threshold must be 64 or less.\n", threshold);
                }
                probe.window = Some(value + 1);
            }
            (Some(window), Some(threshold)) => {
                if probe.window > Some(64) {
                    return self.fail("Window must be 64 or less.\n", window);
                }
                if probe.threshold > probe.window {
                    self.add_text("Threshold cannot be greater than window.\n");
                    self.show(threshold);
                    return self.fail("", window);
                }
            }
        }
        Ok(())
    }
}
