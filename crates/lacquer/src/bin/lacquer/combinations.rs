//! Options of `lacquer run` that need others, or that exclude them.

use crate::args::Values;
use crate::failure::Failure;
use crate::https::LOCALHOST;

/// An option that cannot be used with the others, or without one that is missing.
pub struct Conflict {
    pub option: &'static str,
    /// The reason, as it follows the name of the option.
    pub what: &'static str,
    pub hint: &'static str,
}

/// Fails at the first conflict.
pub fn check(values: &Values) -> Result<(), Failure> {
    match find(values).first() {
        Some(Conflict { option, what, hint }) => {
            Err(Failure::new(format_args!("--{option} {what}")).hint(hint))
        }
        None => Ok(()),
    }
}

/// Returns all conflicts.
pub fn find(values: &Values) -> Vec<Conflict> {
    let mut found = Vec::new();
    let mut add = |option, what, hint| found.push(Conflict { option, what, hint });
    let https = values.many("https");
    if https.is_empty() {
        let companions = ["https-listen", "no-http3", "hsts", "staging", "email"];
        for option in companions.into_iter().filter(|option| values.has(option)) {
            add(option, "needs --https", "name the site: --https example.org, or --https localhost");
        }
    } else if https.iter().any(|names| names == LOCALHOST) {
        if https.len() > 1 || values.has("staging") || values.has("email") {
            add(
                "https",
                "localhost cannot be combined with other names, --staging or --email",
                "an authority of your own signs its certificate",
            );
        }
        if values.has("hsts") {
            add(
                "hsts",
                "cannot be used for localhost",
                "browsers would refuse every other server on this machine that has no https",
            );
        }
    }
    if values.has("log-to") && !values.has("log") {
        add("log-to", "needs --log", "name a format too: --log json");
    }
    if values.has("secret") && !values.has("admin") {
        add("secret", "needs --admin", "name the address that it is for: --admin 6082");
    }
    found
}
