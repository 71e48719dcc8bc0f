//! Why an attempt to obtain a certificate has failed.

use std::fmt;
use std::time::Duration;

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// A text for the operator, in one line.
    text: String,
    /// The time for which the server asked us to wait.
    wait: Option<Duration>,
    /// The server does not have the account.
    lacks_account: bool,
}

/// The problem of an account that the server does not have (RFC 8555, section 6.7).
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// The maximum number of characters of a text, which can contain those of a server.
const MAX_TEXT: usize = 500;

impl Fault {
    pub fn new(text: impl fmt::Display) -> Fault {
        let text = text.to_string();
        let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        Fault { text: printable.take(MAX_TEXT).collect(), wait: None, lacks_account: false }
    }

    /// Adds the part of the work that has failed.
    #[must_use]
    pub fn during(self, what: &str) -> Fault {
        Fault { text: format!("{what}: {}", self.text), ..self }
    }

    #[must_use]
    pub fn with_wait(self, wait: Option<Duration>) -> Fault {
        Fault { wait: wait.or(self.wait), ..self }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// Returns whether the server does not have the account.
    pub fn lacks_account(&self) -> bool {
        self.lacks_account
    }
}

impl From<instant_acme::Error> for Fault {
    fn from(error: instant_acme::Error) -> Fault {
        match error {
            instant_acme::Error::Json(why) => {
                Fault::new(format_args!("the server's answer is not JSON of ACME: {why}"))
            }
            error if error.to_string().contains("UnknownIssuer") => Fault::new(format_args!(
                "{error}: no trusted authority has signed the server's certificate; name its authority in acme_ca_file"
            )),
            // RFC 8555, section 7.3.4: the server accepts only accounts of its customers.
            error if error.to_string().contains("externalAccountRequired") => Fault::new(format_args!(
                "{error}; name the file with the key of the external account in acme_external_account"
            )),
            instant_acme::Error::Api(problem) if problem.r#type.as_deref() == Some(NO_ACCOUNT) => {
                Fault { lacks_account: true, ..Fault::new(problem) }
            }
            error => Fault::new(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_one_line() {
        let fault = Fault::new(format_args!("a\nb\u{1b}[2J{}", "x".repeat(1000))).during("order");
        assert!(fault.text().starts_with("order: a b [2Jx"));
        assert!(fault.text().len() < 520);
    }
}
