//! The responses to the challenges of an order: published by the manager, or as DNS records by the operator's program.

use std::path::Path;

use instant_acme::KeyAuthorization;

use crate::challenge::{self, Challenge, Method};
use crate::fault::Fault;
use crate::hook;
use crate::link::{Event, Link};
use crate::rights::Rights;

/// A DNS record.
struct Record {
    name: String,
    value: String,
}

/// The responses of an order. They are removed at its end.
pub struct Responses<'a> {
    link: &'a Link,
    hook: Option<&'a Path>,
    rights: &'a Rights,
    challenges: Vec<Challenge>,
    records: Vec<Record>,
    published: bool,
}

impl<'a> Responses<'a> {
    pub fn new(link: &'a Link, hook: Option<&'a Path>, rights: &'a Rights) -> Responses<'a> {
        Responses { link, hook, rights, challenges: Vec::new(), records: Vec::new(), published: false }
    }

    /// Adds the response to a challenge. It takes effect with [`Responses::publish`]; a DNS record exists at once.
    pub fn add(
        &mut self,
        method: Method,
        name: &str,
        token: &str,
        authorization: &KeyAuthorization,
    ) -> Result<(), Fault> {
        if !challenge::is_token(token) {
            return Err(Fault::new("the server sends a token with forbidden characters"));
        }
        match method {
            Method::Http => {
                let content = authorization.as_str().to_owned();
                self.challenges.push(Challenge::Page { token: token.to_owned(), content });
            }
            Method::TlsAlpn => {
                let made = challenge::certificate(name, authorization.digest().as_ref());
                self.challenges.push(made.map_err(Fault::new)?);
            }
            Method::Dns => {
                let hook = self.hook.ok_or_else(|| {
                    Fault::new(format_args!(
                        "{name}: dns-01 needs a program that sets DNS records: acme_dns_hook"
                    ))
                })?;
                let record =
                    Record { name: format!("_acme-challenge.{name}"), value: authorization.dns_value() };
                let added = hook::call(hook, self.rights, ["add", &record.name, &record.value]);
                // A program that has failed may have added the record nevertheless.
                self.records.push(record);
                added?;
            }
        }
        Ok(())
    }

    /// Publishes the responses, and waits until they are in effect.
    pub fn publish(&mut self) -> Result<(), Fault> {
        if self.challenges.is_empty() {
            return Ok(());
        }
        self.published = true;
        let all = self.challenges.clone();
        let asked = self.link.ask(|reply| Event::Challenges { all, reply });
        asked.map_err(|fault| fault.during("the challenges cannot be published"))
    }

    /// Removes all responses. Reports failures.
    pub fn remove(&mut self) {
        if std::mem::take(&mut self.published) {
            self.challenges.clear();
            let asked = self.link.ask(|reply| Event::Challenges { all: Vec::new(), reply });
            if let Err(fault) = asked {
                self.link.report(format!("the challenges cannot be removed: {}", fault.text()), true);
            }
        }
        let Some(hook) = self.hook else { return };
        for record in self.records.drain(..) {
            if let Err(fault) = hook::call(hook, self.rights, ["remove", &record.name, &record.value]) {
                self.link.report(fault.text().to_owned(), true);
            }
        }
    }
}

impl Drop for Responses<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}
