//! The file of `-A`: listeners with TLS, their certificates and settings. The grammar is that of Varnish 9.

use std::path::{Path, PathBuf};

use lacquer_tls::Protocols;

use super::tokens::{Located, Token, tokens};
use crate::client_certificates::ClientOptions;

/// The settings that the file, a listener or a certificate can have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub ciphers: Option<String>,
    pub ciphersuites: Option<String>,
    pub protocols: Protocols,
    pub prefer_server_ciphers: Option<bool>,
    pub sni_nomatch_abort: Option<bool>,
    pub groups: Option<String>,
    /// Whether the listener has HTTP/3 too.
    pub http3: Option<bool>,
    pub clients: ClientOptions,
}

/// The files of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    pub certificate: PathBuf,
    pub key: Option<PathBuf>,
    pub dh: Option<PathBuf>,
    pub staple: Option<PathBuf>,
}

/// A certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    pub id: Option<String>,
    pub paths: Paths,
    pub options: Options,
}

/// A listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontend {
    pub name: Option<String>,
    /// The address as in `-a`, instead of host and port.
    pub address: Option<String>,
    pub host: Option<String>,
    pub port: Option<String>,
    pub match_global: Option<bool>,
    /// The names of certificates to obtain; one text for each certificate.
    pub acme: Vec<String>,
    pub options: Options,
    pub certificates: Vec<Certificate>,
}

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub frontends: Vec<Frontend>,
    /// Certificates for all listeners.
    pub certificates: Vec<Certificate>,
    pub options: Options,
}

/// The number of the line at which a token is wrong, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    line: usize,
    why: String,
}

impl Fault {
    /// Returns the text for the operator, with the line.
    pub fn text(&self, file: &str) -> String {
        let line = file.lines().nth(self.line.saturating_sub(1)).unwrap_or_default();
        format!("-A: Parsing error in line {}: {}: '{line}'", self.line, self.why)
    }
}

type Parsed<T> = Result<T, Fault>;

/// A position among the tokens.
struct Parser<'a> {
    tokens: Vec<Located<'a>>,
    at: usize,
    last_line: usize,
}

fn boolean(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "yes" | "y" | "on" | "true" | "t" => Some(true),
        "no" | "n" | "off" | "false" | "f" => Some(false),
        _ => None,
    }
}

/// Returns the absolute path, because the daemon leaves the directory in which it was started.
fn path(text: &str) -> PathBuf {
    std::path::absolute(text).unwrap_or_else(|_| Path::new(text).to_path_buf())
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|located| located.token)
    }

    fn fault<T>(&self, why: impl Into<String>) -> Parsed<T> {
        let line = self.tokens.get(self.at).map_or(self.last_line, |located| located.line);
        Err(Fault { line, why: why.into() })
    }

    fn sign(&mut self, sign: u8) -> Parsed<()> {
        if self.peek() != Some(Token::Sign(sign)) {
            return self.fault("syntax error");
        }
        self.at += 1;
        Ok(())
    }

    /// Reads `keyword =`, or the brace that ends a block.
    fn key(&mut self) -> Parsed<Option<&'a str>> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.at += 1;
                self.sign(b'=')?;
                Ok(Some(word))
            }
            Some(Token::Sign(b'}')) => {
                self.at += 1;
                Ok(None)
            }
            _ => self.fault("syntax error"),
        }
    }

    fn text(&mut self) -> Parsed<&'a str> {
        let Some(Token::Word(text) | Token::Text(text)) = self.peek() else {
            return self.fault("syntax error");
        };
        self.at += 1;
        Ok(text)
    }

    /// Reads a text. An empty one has no effect.
    fn some_text(&mut self) -> Parsed<Option<String>> {
        Ok(Some(self.text()?.to_owned()).filter(|text| !text.is_empty()))
    }

    fn boolean(&mut self) -> Parsed<Option<bool>> {
        match boolean(self.text()?) {
            Some(value) => Ok(Some(value)),
            None => {
                self.at -= 1;
                self.fault("syntax error")
            }
        }
    }

    fn protocols(&mut self) -> Parsed<Protocols> {
        let mut set = Protocols::default();
        // A word before `=` is the next keyword.
        while let Some(Token::Word(word) | Token::Text(word)) = self.peek()
            && self.tokens.get(self.at + 1).map(|next| next.token) != Some(Token::Sign(b'='))
        {
            if !set.add(word) {
                return self.fault("syntax error");
            }
            self.at += 1;
        }
        if set.is_empty() { self.fault("syntax error") } else { Ok(set) }
    }

    /// Reads the value of a setting. Returns false for another keyword.
    fn option(&mut self, key: &str, options: &mut Options) -> Parsed<bool> {
        match key {
            "ciphers" => options.ciphers = self.some_text()?,
            "ciphersuites" => options.ciphersuites = self.some_text()?,
            "tls-protos" => options.protocols = self.protocols()?,
            "prefer-server-ciphers" => options.prefer_server_ciphers = self.boolean()?,
            "sni-nomatch-abort" => options.sni_nomatch_abort = self.boolean()?,
            "ecdh-curve" => options.groups = self.some_text()?,
            "h3" => options.http3 = self.boolean()?,
            _ if ClientOptions::has(key) => {
                let value = self.text()?;
                if !value.is_empty()
                    && let Err(why) = options.clients.set(key, value)
                {
                    self.at -= 1;
                    return self.fault(why);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reports an unknown keyword, whose value comes next.
    fn unknown<T>(&mut self) -> Parsed<T> {
        self.at -= 2;
        self.fault("syntax error")
    }

    /// Reads a value of `pem-file`.
    fn certificate(&mut self) -> Parsed<Option<Certificate>> {
        let mut certificate = Certificate::default();
        if self.peek() != Some(Token::Sign(b'{')) {
            let Some(text) = self.some_text()? else { return Ok(None) };
            certificate.paths.certificate = path(&text);
            return Ok(Some(certificate));
        }
        self.at += 1;
        let Certificate { id, paths, options } = &mut certificate;
        while let Some(key) = self.key()? {
            match key {
                "cert" => paths.certificate = path(self.text()?),
                "private-key" => paths.key = self.some_text()?.as_deref().map(path),
                "dhparam" => paths.dh = self.some_text()?.as_deref().map(path),
                "ocsp-resp-file" => paths.staple = self.some_text()?.as_deref().map(path),
                "name" => *id = self.some_text()?,
                "ciphers" | "ciphersuites" => {
                    self.option(key, options)?;
                }
                _ => return self.unknown(),
            }
        }
        if paths.certificate.as_os_str().is_empty() {
            self.at -= 1;
            return self.fault("pem-file has no cert");
        }
        Ok(Some(certificate))
    }

    /// Reads a value of `frontend`.
    fn frontend(&mut self) -> Parsed<Frontend> {
        let mut frontend = Frontend::default();
        if self.peek() != Some(Token::Sign(b'{')) {
            frontend.address = Some(self.text()?.to_owned());
            return Ok(frontend);
        }
        self.at += 1;
        while let Some(key) = self.key()? {
            match key {
                "host" => frontend.host = self.some_text()?,
                "port" => frontend.port = self.some_text()?,
                "name" => frontend.name = self.some_text()?,
                "match-global-certs" => frontend.match_global = self.boolean()?,
                "pem-file" => frontend.certificates.extend(self.certificate()?),
                "acme" => frontend.acme.extend(self.some_text()?),
                "ecdh-curve" => return self.unknown(),
                _ => {
                    if !self.option(key, &mut frontend.options)? {
                        return self.unknown();
                    }
                }
            }
        }
        Ok(frontend)
    }
}

/// Parses the file.
pub fn parse(text: &str) -> Parsed<Config> {
    let last_line = text.lines().count().max(1);
    let mut parser = Parser { tokens: tokens(text), at: 0, last_line };
    let mut config = Config::default();
    if parser.tokens.is_empty() {
        return parser.fault("syntax error");
    }
    while parser.at < parser.tokens.len() {
        let Some(key) = parser.key()? else {
            parser.at -= 1;
            return parser.fault("syntax error");
        };
        match key {
            "frontend" => config.frontends.push(parser.frontend()?),
            "pem-file" => config.certificates.extend(parser.certificate()?),
            _ => {
                if !parser.option(key, &mut config.options)? {
                    return parser.unknown();
                }
            }
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file() {
        let text = r#"
            # Everything
            frontend = {
                host = "*"   port = "443"
                name = "tls0"
                tls-protos = TLSv1.2 TLSv1.3
                match-global-certs = on
                h3 = on
                acme = "a.example www.a.example"
                acme = b.example
                pem-file = "/local.pem"
                pem-file = { cert = "/c.pem" private-key = "/k.pem" dhparam = "/d" name = "one"
                             ocsp-resp-file = "/o" ciphers = "HIGH" }
            }
            frontend = "*:8443"
            h3 = "no"
            pem-file = "/global.pem"
            pem-file = ""
            sni-nomatch-abort = "Yes"
            prefer-server-ciphers = f
            ecdh-curve = "X25519:P-256"
            tls-protos = TLSv1.3
        "#;
        let config = parse(text).unwrap();
        let [one, two] = &config.frontends[..] else { panic!("{config:?}") };
        assert_eq!((one.host.as_deref(), one.port.as_deref()), (Some("*"), Some("443")));
        assert_eq!((one.name.as_deref(), one.match_global), (Some("tls0"), Some(true)));
        assert_eq!(one.certificates[0].paths.certificate, Path::new("/local.pem"));
        assert_eq!(one.certificates[1].paths.key.as_deref(), Some(Path::new("/k.pem")));
        assert_eq!(one.certificates[1].paths.staple.as_deref(), Some(Path::new("/o")));
        assert_eq!(one.certificates[1].options.ciphers.as_deref(), Some("HIGH"));
        assert_eq!((one.options.http3, config.options.http3), (Some(true), Some(false)));
        assert_eq!(one.acme, ["a.example www.a.example", "b.example"]);
        assert_eq!(two.address.as_deref(), Some("*:8443"));
        assert_eq!(config.certificates.len(), 1);
        assert_eq!(config.options.sni_nomatch_abort, Some(true));
        assert_eq!(config.options.prefer_server_ciphers, Some(false));
        assert_eq!(config.options.groups.as_deref(), Some("X25519:P-256"));
    }

    #[test]
    fn relative_paths_become_absolute() {
        let config = parse("pem-file = \"x.pem\"").unwrap();
        assert!(config.certificates[0].paths.certificate.is_absolute());
    }

    #[test]
    fn faults_name_the_line() {
        for (text, line, why) in [
            ("", 1, "syntax error"),
            ("\n\nfoo = bar\n", 3, "syntax error"),
            ("frontend = {\n host = \"x\"\n", 2, "syntax error"),
            ("frontend = {\n port \"x\" }\n", 2, "syntax error"),
            ("frontend = {\n ecdh-curve = \"x\" }\n", 2, "syntax error"),
            ("tls-protos = SSLv2", 1, "syntax error"),
            ("tls-protos = ", 1, "syntax error"),
            ("sni-nomatch-abort = maybe", 1, "syntax error"),
            ("frontend = {\n h3 = udp }", 2, "syntax error"),
            ("frontend = {\n h3 }", 2, "syntax error"),
            ("pem-file = {\n h3 = on }", 2, "syntax error"),
            ("}", 1, "syntax error"),
            ("pem-file = {\n private-key = \"x\" }", 2, "pem-file has no cert"),
        ] {
            let fault = parse(text).unwrap_err();
            assert_eq!((fault.line, fault.why.as_str()), (line, why), "{text}");
        }
        let text = parse("a = b").unwrap_err().text("a = b");
        assert_eq!(text, "-A: Parsing error in line 1: syntax error: 'a = b'");
    }

    #[test]
    fn no_text_makes_it_panic() {
        let words = [
            "frontend",
            "=",
            "{",
            "}",
            "pem-file",
            "\"x\"",
            "tls-protos",
            "TLSv1.2",
            "\"",
            "#",
            "\n",
            "ö",
            "cert",
        ];
        let mut seed = 7u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..8 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text += words[(seed >> 33) as usize % words.len()];
                text.push(' ');
            }
            let _ = parse(&text);
        }
    }
}
