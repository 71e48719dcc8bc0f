//! The settings of the client.

use std::path::PathBuf;

use http::Uri;

use crate::challenge::Method;
use crate::external_account::ExternalAccount;

const PRODUCTION: &str = "https://acme-v02.api.letsencrypt.org/directory";
const STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// The address of an ACME server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    url: String,
}

impl Directory {
    /// Parses a URL, or a name for one. The error is a text for the operator.
    pub fn parse(text: &str) -> Result<Directory, String> {
        let url = match text {
            "letsencrypt" => PRODUCTION,
            "letsencrypt-staging" => STAGING,
            url => url,
        };
        let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
        if uri.scheme_str() != Some("https") || uri.host().is_none_or(str::is_empty) {
            return Err(format!(
                "{url}: write letsencrypt, letsencrypt-staging or a URL that begins with https://"
            ));
        }
        Ok(Directory { url: url.to_owned() })
    }

    /// Returns the URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns a name for a folder. Servers with other URLs have another one.
    pub fn folder_name(&self) -> String {
        let rest = self.url.strip_prefix("https://").unwrap_or(&self.url);
        let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        let safe: String = rest.chars().map(|c| if is_safe(c) { c } else { '_' }).collect();
        // The name is never `.`, `..` or hidden, and no longer than the name of a file may be.
        format!("at-{}", safe.chars().take(200).collect::<String>())
    }
}

/// The methods that the operator allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MethodChoice {
    /// DNS-01 for wildcards. For other names HTTP-01 and TLS-ALPN-01, by turns as long as they fail.
    #[default]
    Auto,
    Only(Method),
}

impl MethodChoice {
    /// Parses the name of a method, or `auto`.
    pub fn parse(text: &str) -> Result<MethodChoice, String> {
        Ok(match text {
            "auto" => MethodChoice::Auto,
            "http-01" => MethodChoice::Only(Method::Http),
            "tls-alpn-01" => MethodChoice::Only(Method::TlsAlpn),
            "dns-01" => MethodChoice::Only(Method::Dns),
            _ => return Err("write auto, http-01, tls-alpn-01 or dns-01".to_owned()),
        })
    }

    /// Returns the method for a name after a number of failures.
    pub fn method(self, is_wildcard: bool, failures: u32) -> Method {
        match self {
            _ if is_wildcard => Method::Dns,
            MethodChoice::Only(method) => method,
            MethodChoice::Auto if failures.is_multiple_of(2) => Method::Http,
            MethodChoice::Auto => Method::TlsAlpn,
        }
    }
}

/// All settings.
#[derive(Clone, Debug)]
pub struct Settings {
    pub directory: Directory,
    /// The operator's addresses for the server, each a URL such as `mailto:`.
    pub contacts: Vec<String>,
    /// The account at the authority to which a new ACME account is bound.
    pub external_account: Option<ExternalAccount>,
    pub methods: MethodChoice,
    /// The program that adds and removes DNS records.
    pub hook: Option<PathBuf>,
    /// The authorities of the server's own certificate, in PEM.
    pub trusted: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories() {
        let directory = |text| Directory::parse(text).map(|directory| directory.folder_name());
        assert_eq!(directory("letsencrypt"), Ok("at-acme-v02.api.letsencrypt.org_directory".to_owned()));
        assert_ne!(directory("letsencrypt-staging"), directory("letsencrypt"));
        assert_eq!(directory("https://[::1]:14000/dir"), Ok("at-___1__14000_dir".to_owned()));
        assert_eq!(directory("https://a/../../x"), Ok("at-a_.._.._x".to_owned()));
        for wrong in ["http://a/", "a", "", "https://", "file:///x", "https:///x", "https://a b/"] {
            assert!(Directory::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn methods() {
        let auto = MethodChoice::parse("auto").unwrap();
        assert_eq!(auto.method(true, 1), Method::Dns);
        assert_eq!((auto.method(false, 0), auto.method(false, 1)), (Method::Http, Method::TlsAlpn));
        assert_eq!(MethodChoice::parse("dns-01").unwrap().method(false, 7), Method::Dns);
        assert!(MethodChoice::parse("DNS").is_err());
    }
}
