//! Literals with units, flags, and host names, for declarations and expressions.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use lacquer_params::number;

use crate::compiler::{Compiler, Mention, Mode, Res};
use crate::lexer::Tok;
use crate::symbols::{Kind, Meaning, TokenId};

impl Compiler<'_> {
    /// Returns the unit that is the current token, in seconds.
    pub fn duration_unit(&mut self) -> Res<f64> {
        let Some(seconds) = number::unit_seconds(self.text(self.t)) else {
            let unit = self.quoted(self.t);
            let legal = "Legal duration units are 'ms', 's', 'm', 'h', 'd', 'w' and 'y'";
            return self.fail(format!("Unknown duration unit {unit}\n{legal}\n"), self.t);
        };
        self.advance();
        Ok(seconds)
    }

    /// Parses a number with a unit of time, as in fields of backends.
    pub fn duration(&mut self) -> Res<f64> {
        if !matches!(self.now(), Tok::Cnum | Tok::Fnum) {
            self.want(Tok::Cnum)?;
        }
        let number = self.number(self.t);
        self.advance();
        self.want(Tok::Id)?;
        Ok(number * self.duration_unit()?)
    }

    /// Parses a string literal. Returns its token and contents.
    pub fn string_field(&mut self) -> Res<(TokenId, String)> {
        self.want(Tok::Cstr)?;
        let token = self.t;
        self.advance();
        Ok((token, self.content_text(token).into_owned()))
    }

    pub fn uint(&mut self) -> Res<u64> {
        self.want(Tok::Cnum)?;
        let number = self.number(self.t) as u64;
        self.advance();
        Ok(number)
    }

    pub fn bytes_literal(&mut self) -> Res<i64> {
        if !matches!(self.now(), Tok::Cnum | Tok::Fnum) {
            self.want(Tok::Cnum)?;
        }
        let value = self.number(self.t);
        self.advance();
        if self.now() != Tok::Id {
            let got = self.quoted(self.t);
            return self.fail(format!("Expected BYTES unit (B, KB, MB...) got {got}\n"), self.t);
        }
        let Some(scale) = number::unit_bytes(self.text(self.t)) else {
            let quoted = self.quoted(self.t);
            return self.fail(format!("{}{quoted}", number::UNKNOWN_BYTES_UNIT), self.t);
        };
        if scale == 1.0 && value.fract() != 0.0 {
            let quoted = self.quoted(self.t);
            return self.fail(format!("{}{quoted}", number::FRACTIONAL_BYTES), self.t);
        }
        self.advance();
        Ok((value * scale) as i64)
    }

    /// Parses `true` or `false`.
    pub fn truth(&mut self) -> Res<bool> {
        if self.now() == Tok::Id {
            let symbol = self.symbol(Kind::None, Mode::Quiet, Mention::Nothing)?;
            if let Some(Meaning::Truth(truth)) = symbol.map(|s| &self.symbols.list[s].meaning) {
                return Ok(*truth);
            }
        }
        self.fail("Expected \"true\" or \"false\"\n", self.t)
    }

    /// Parses `+flag` or `-flag`. Returns whether it is set. The word is then the current token.
    pub fn flag(&mut self) -> Res<Option<bool>> {
        let set = match self.now() {
            Tok::Plus => true,
            Tok::Minus => false,
            _ => return Ok(None),
        };
        if self.span(self.t + 1).start != self.span(self.t).end {
            return self.fail("Expected a flag at:\n", self.t);
        }
        self.advance();
        Ok(Some(set))
    }

    /// Returns the single address that a string literal resolves to.
    pub fn resolve_one(&mut self, token: TokenId) -> Res<SocketAddr> {
        let host = self.content_text(token).into_owned();
        let addresses = self.resolve(&host, token, "IP constant", 1)?;
        match addresses.first() {
            Some(address) => Ok(*address),
            None => self.fail_unplaced("", token),
        }
    }

    /// Returns all addresses of `host`, `host:port`, `host port` or `[host]:port`. Fails if there are more than `most`.
    pub fn resolve(&mut self, host: &str, token: TokenId, what: &str, most: usize) -> Res<Vec<SocketAddr>> {
        let quoted = self.shown(token);
        let resolved = split_port(host)
            .map_err(str::to_owned)
            .and_then(|(host, port)| self.lookup(host, port.unwrap_or("80")));
        let mut addresses: Vec<SocketAddr> = match resolved {
            Ok(addresses) => addresses,
            Err(error) => {
                let message = format!(
                    "{what} '{quoted}' could not be resolved to an IP address:\n\t{error}\n\
                     (Sorry if that error message is gibberish.)\n"
                );
                return self.fail(message, token);
            }
        };
        let mut seen = Vec::new();
        addresses.retain(|a| !seen.contains(a) && (seen.push(*a), true).1);
        if addresses.is_empty() {
            let message = format!("{what} '{quoted}': resolves to neither IPv4 nor IPv6 addresses.\n");
            return self.fail(message, token);
        }
        let v4 = addresses.iter().filter(|a| a.is_ipv4()).count();
        if v4 > 1 || addresses.len() - v4 > 1 || addresses.len() > most {
            let or = if most > 1 { "and one" } else { "or" };
            let mut message = format!(
                "{what} {quoted}: resolves to too many addresses.\nOnly one IPv4 {or} IPv6 are allowed.\n\
                 Please specify which exact address you want to use, we found all of these:\n"
            );
            for address in &addresses {
                let _ = writeln!(message, "\t{}:{}", address.ip(), address.port());
            }
            return self.fail(message, token);
        }
        Ok(addresses)
    }

    fn lookup(&self, host: Option<&str>, port: &str) -> Result<Vec<SocketAddr>, String> {
        if let (Some(Ok(ip)), Ok(port)) = (host.map(str::parse::<IpAddr>), port.parse()) {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        self.input.options.resolver.resolve(host, port)
    }
}

/// Splits an address and its port, in all forms that Varnish supports.
pub(crate) fn split_port(text: &str) -> Result<(Option<&str>, Option<&str>), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or("IPv6 address lacks ']'")?;
        if port.is_empty() {
            return Ok((Some(host), None));
        }
        let port = port.strip_prefix([' ', ':']).ok_or("IPv6 address has wrong port separator")?;
        return Ok((Some(host), Some(port)));
    }
    let Some(at) = text.find(' ').or_else(|| text.find(':')) else { return Ok((Some(text), None)) };
    if text.as_bytes()[at] == b':' && text[at + 1..].contains(':') {
        return Ok((Some(text), None));
    }
    let host = (at > 0).then_some(&text[..at]);
    Ok((host, Some(&text[at + 1..])))
}

/// Returns whether a text has the form of a host name. A name whose last label is a number is none, because it is a
/// mistyped address.
pub fn is_host_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let is_part = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        !label.is_empty() && label.len() <= 63 && label.bytes().all(is_part)
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253 && text.split('.').all(is_label) && !last.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{is_host_name, split_port};

    #[test]
    fn addresses_and_malformed_texts_are_no_names() {
        for name in
            ["localhost", "a.b", "a.b.", "x_1.svc.cluster.local", "3com.com", "a-b", "xn--bcher-kva.example"]
        {
            assert!(is_host_name(name), "{name}");
        }
        let (label, name) = ("x".repeat(64), vec!["x"; 128].join("."));
        for text in
            ["", ".", "a..b", ".a", "1.2.3", "999.999.999.999", "a b", "a/b", "::1", "é", &label, &name]
        {
            assert!(!is_host_name(text), "{text}");
        }
    }

    #[test]
    fn all_forms_of_addresses_and_ports_are_split() {
        assert_eq!(split_port("a.b"), Ok((Some("a.b"), None)));
        assert_eq!(split_port("a.b:80"), Ok((Some("a.b"), Some("80"))));
        assert_eq!(split_port("1.2.3.4 http"), Ok((Some("1.2.3.4"), Some("http"))));
        assert_eq!(split_port("::1"), Ok((Some("::1"), None)));
        assert_eq!(split_port("::1 80"), Ok((Some("::1"), Some("80"))));
        assert_eq!(split_port("[::1]:80"), Ok((Some("::1"), Some("80"))));
        assert_eq!(split_port(":80"), Ok((None, Some("80"))));
        assert_eq!(split_port("[::1"), Err("IPv6 address lacks ']'"));
    }
}
