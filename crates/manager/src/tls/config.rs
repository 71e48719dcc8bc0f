//! The file of `-A`: listeners with TLS, their certificates and settings. The grammar is that of Varnish 9.

use std::path::PathBuf;

use lacquer_tls::{Protocols, Settings};

use super::tokens::{Located, Token, tokens};
use crate::client_certificates::ClientOptions;
use crate::workdir::absolute;

/// The settings of each place, for texts.
const IN_FILE: &str = "frontend, pem-file, ciphers, ciphersuites, ecdh-curve, tls-protos, prefer-server-ciphers, \
     sni-nomatch-abort, h3, client-verify, client-verify-ca, client-verify-crl";
const IN_FRONTEND: &str = "host, port, name, pem-file, acme, match-global-certs, ciphers, ciphersuites, tls-protos, \
     prefer-server-ciphers, sni-nomatch-abort, h3, client-verify, client-verify-ca, client-verify-crl";
const IN_CERTIFICATE: &str = "cert, private-key, name, ocsp-resp-file, dhparam, ciphers, ciphersuites";

const VERSIONS: &str = "TLSv1.2, TLSv1.3 or both";

/// The maximum number of characters of a token in a text.
const EXCERPT: usize = 40;

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
    /// The number of its first line.
    pub line: usize,
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
    /// The number of its first line.
    pub line: usize,
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
    /// Returns the text for the operator. It begins as that of Varnish 9.
    pub fn text(&self, path: &str) -> String {
        format!("-A: Parsing error in line {0}: {1} ({path}:{0})", self.line, self.why)
    }
}

type Parsed<T> = Result<T, Fault>;

/// A position among the tokens.
struct Parser<'a> {
    tokens: Vec<Located<'a>>,
    at: usize,
    last_line: usize,
    /// The setting whose value is being read.
    setting: &'a str,
}

fn boolean(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "yes" | "y" | "on" | "true" | "t" => Some(true),
        "no" | "n" | "off" | "false" | "f" => Some(false),
        _ => None,
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|located| located.token)
    }

    /// Returns the number of the line of the next token.
    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(self.last_line, |located| located.line)
    }

    /// Reports a fault of the setting at the next token.
    fn fault<T>(&self, why: impl std::fmt::Display) -> Parsed<T> {
        let setting = if self.setting.is_empty() { String::new() } else { format!("{}: ", self.setting) };
        Err(Fault { line: self.line(), why: format!("{setting}{why}") })
    }

    /// Reports that the next token is another than the expected one.
    fn expected<T>(&self, what: &str) -> Parsed<T> {
        let found = match self.peek() {
            None => "the end of the file".to_owned(),
            Some(Token::Sign(sign)) => format!("'{}'", char::from(sign)),
            Some(Token::Word(text) | Token::Text(text)) => {
                format!("'{}'", text.chars().take(EXCERPT).flat_map(char::escape_debug).collect::<String>())
            }
        };
        self.fault(format_args!("expected {what}, found {found}"))
    }

    fn sign(&mut self, sign: u8) -> Parsed<()> {
        if self.peek() != Some(Token::Sign(sign)) {
            return self.expected(&format!("'{}'", char::from(sign)));
        }
        self.at += 1;
        Ok(())
    }

    /// Reads `keyword =`, or the brace that ends a block.
    fn key(&mut self) -> Parsed<Option<&'a str>> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.at += 1;
                self.setting = word;
                self.sign(b'=')?;
                Ok(Some(word))
            }
            Some(Token::Sign(b'}')) => {
                self.at += 1;
                Ok(None)
            }
            _ => {
                self.setting = "";
                self.expected("a setting or '}'")
            }
        }
    }

    fn text(&mut self) -> Parsed<&'a str> {
        let Some(Token::Word(text) | Token::Text(text)) = self.peek() else {
            return self.expected("a word, or a text in quotes");
        };
        self.at += 1;
        Ok(text)
    }

    /// Reads a text. An empty one has no effect.
    fn some_text(&mut self) -> Parsed<Option<String>> {
        Ok(Some(self.text()?.to_owned()).filter(|text| !text.is_empty()))
    }

    /// Reads a text that must be valid in these settings of TLS.
    fn checked_text(&mut self, settings: impl FnOnce(String) -> Settings) -> Parsed<Option<String>> {
        let text = self.some_text()?;
        if let Some(text) = &text
            && let Err(why) = settings(text.clone()).check()
        {
            self.at -= 1;
            return self.fault(why);
        }
        Ok(text)
    }

    fn boolean(&mut self) -> Parsed<Option<bool>> {
        match boolean(self.text()?) {
            Some(value) => Ok(Some(value)),
            None => {
                self.at -= 1;
                self.expected("on or off")
            }
        }
    }

    fn protocols(&mut self) -> Parsed<Protocols> {
        let (mut set, first) = (Protocols::default(), self.at);
        // A word before `=` is the next keyword.
        while let Some(Token::Word(word) | Token::Text(word)) = self.peek()
            && self.tokens.get(self.at + 1).map(|next| next.token) != Some(Token::Sign(b'='))
        {
            if !set.add(word) {
                return self.expected(VERSIONS);
            }
            self.at += 1;
        }
        if set.is_empty() {
            return self.expected(VERSIONS);
        }
        if let Err(why) = set.versions() {
            self.at = first;
            return self.fault(why);
        }
        Ok(set)
    }

    /// Reads the value of a setting. Returns false for another keyword.
    fn option(&mut self, key: &str, options: &mut Options) -> Parsed<bool> {
        match key {
            "ciphers" => {
                options.ciphers = self.checked_text(|ciphers| Settings { ciphers, ..Settings::default() })?;
            }
            "ciphersuites" => {
                let settings = |ciphersuites| Settings { ciphersuites, ..Settings::default() };
                options.ciphersuites = self.checked_text(settings)?;
            }
            "tls-protos" => options.protocols = self.protocols()?,
            "prefer-server-ciphers" => options.prefer_server_ciphers = self.boolean()?,
            "sni-nomatch-abort" => options.sni_nomatch_abort = self.boolean()?,
            "ecdh-curve" => {
                options.groups = self.checked_text(|groups| Settings { groups, ..Settings::default() })?;
            }
            "h3" => options.http3 = self.boolean()?,
            _ if ClientOptions::has(key) => {
                let value = self.text()?;
                if !value.is_empty()
                    && let Err(why) = options.clients.set(key, value)
                {
                    self.at -= 1;
                    return Err(Fault { line: self.line(), why });
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reports an unknown keyword, whose value comes next. `known` lists those of its place.
    fn unknown<T>(&mut self, known: &str) -> Parsed<T> {
        self.at -= 2;
        self.setting = "";
        self.expected(&format!("one of {known}"))
    }

    /// Reads a value of `pem-file`.
    fn certificate(&mut self) -> Parsed<Option<Certificate>> {
        let mut certificate = Certificate { line: self.line(), ..Certificate::default() };
        if self.peek() != Some(Token::Sign(b'{')) {
            let Some(text) = self.some_text()? else { return Ok(None) };
            certificate.paths.certificate = absolute(&text);
            return Ok(Some(certificate));
        }
        self.at += 1;
        let Certificate { id, paths, options, .. } = &mut certificate;
        while let Some(key) = self.key()? {
            match key {
                "cert" => paths.certificate = absolute(self.text()?),
                "private-key" => paths.key = self.some_text()?.as_deref().map(absolute),
                "dhparam" => paths.dh = self.some_text()?.as_deref().map(absolute),
                "ocsp-resp-file" => paths.staple = self.some_text()?.as_deref().map(absolute),
                "name" => *id = self.some_text()?,
                "ciphers" | "ciphersuites" => {
                    self.option(key, options)?;
                }
                _ => return self.unknown(IN_CERTIFICATE),
            }
        }
        if paths.certificate.as_os_str().is_empty() {
            self.at -= 1;
            self.setting = "pem-file";
            return self.fault("expected cert = \"FILE\" in the block");
        }
        Ok(Some(certificate))
    }

    /// Reads a value of `frontend`.
    fn frontend(&mut self) -> Parsed<Frontend> {
        let mut frontend = Frontend { line: self.line(), ..Frontend::default() };
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
                "ecdh-curve" => return self.unknown(IN_FRONTEND),
                _ => {
                    if !self.option(key, &mut frontend.options)? {
                        return self.unknown(IN_FRONTEND);
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
    let mut parser = Parser { tokens: tokens(text), at: 0, last_line, setting: "" };
    let mut config = Config::default();
    if parser.tokens.is_empty() {
        return parser.expected("a setting");
    }
    while parser.at < parser.tokens.len() {
        let Some(key) = parser.key()? else {
            parser.at -= 1;
            parser.setting = "";
            return parser.expected("a setting");
        };
        match key {
            "frontend" => config.frontends.push(parser.frontend()?),
            "pem-file" => config.certificates.extend(parser.certificate()?),
            _ => {
                if !parser.option(key, &mut config.options)? {
                    return parser.unknown(IN_FILE);
                }
            }
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
    fn faults_name_the_line_the_setting_and_what_is_expected() {
        for (text, line, why) in [
            ("", 1, "expected a setting, found the end of the file"),
            ("\n\nfoo = bar\n", 3, "expected one of frontend, pem-file, ciphers, "),
            ("frontend = {\n host = \"x\"\n", 2, "expected a setting or '}', found the end of the file"),
            ("frontend = {\n port \"x\" }\n", 2, "port: expected '=', found 'x'"),
            ("frontend = {\n port = }\n", 2, "port: expected a word, or a text in quotes, found '}'"),
            ("frontend = {\n ecdh-curve = \"x\" }\n", 2, "expected one of host, port, "),
            ("frontend = {\n prot = \"443\" }\n", 2, "expected one of host, port, "),
            ("tls-protos = SSLv2", 1, "tls-protos: expected TLSv1.2, TLSv1.3 or both, found 'SSLv2'"),
            ("tls-protos = ", 1, "tls-protos: expected TLSv1.2, TLSv1.3 or both, found the end of the file"),
            ("\ntls-protos = TLSv1.0\n\n", 2, "tls-protos: TLSv1.0 is not supported, use TLSv1.2 or TLSv1.3"),
            ("sni-nomatch-abort = maybe", 1, "sni-nomatch-abort: expected on or off, found 'maybe'"),
            ("frontend = {\n h3 = udp }", 2, "h3: expected on or off, found 'udp'"),
            ("frontend = {\n h3 }", 2, "h3: expected '=', found '}'"),
            ("pem-file = {\n h3 = on }", 2, "expected one of cert, private-key, "),
            ("}", 1, "expected a setting, found '}'"),
            ("pem-file = {\n private-key = \"x\" }", 2, "pem-file: expected cert = \"FILE\" in the block"),
            ("client-verify = maybe", 1, "client-verify: use none, optional or required"),
            (
                "\nciphers = \"NOPE\"",
                2,
                "ciphers: Invalid cipher list: NOPE: \"NOPE\" is not the name of a cipher",
            ),
            ("\n\nciphersuites = \"NOPE\"", 3, "ciphersuites: "),
            (
                "ecdh-curve = \"P-1\"",
                1,
                "ecdh-curve: Failed to set groups: 'P-1': \"P-1\" is not the name of a group",
            ),
            ("frontend = {\n ciphers = \"NOPE\" }", 2, "ciphers: Invalid cipher list: NOPE: "),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.line == line && fault.why.starts_with(why), "{text}: {fault:?}");
        }
        let text = parse("a = b").unwrap_err().text("/etc/tls.conf");
        assert!(text.starts_with("-A: Parsing error in line 1: expected one of frontend, "), "{text}");
        assert!(text.ends_with(", found 'a' (/etc/tls.conf:1)"), "{text}");
    }

    #[test]
    fn the_settings_of_each_place_are_those_of_the_texts() {
        for (known, start, end) in
            [(IN_FILE, "", ""), (IN_FRONTEND, "frontend = {", "}"), (IN_CERTIFICATE, "pem-file = {", "}")]
        {
            for name in known.split(", ") {
                let fault = parse(&format!("{start} {name} = = {end}")).unwrap_err();
                assert!(fault.why.starts_with(&format!("{name}: expected ")), "{name}: {fault:?}");
            }
        }
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
