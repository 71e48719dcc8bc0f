//! Checks values of options without the system: for files with options, whose mistakes are all reported at once. The
//! errors are texts for the user.

use crate::admin;
use crate::fault::Fault;
use crate::storage::StorageArguments;
use crate::tls;

/// Returns a text of several lines as one.
pub fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

fn text_of(fault: &Fault) -> String {
    one_line(fault.text())
}

/// Checks an argument of `-s`.
pub fn check_storage(argument: &str) -> Result<(), String> {
    let mut arguments = StorageArguments::default();
    let checked = arguments.add(argument).map(drop).and_then(|()| arguments.check());
    checked.map_err(|fault| text_of(&fault))
}

/// Checks an argument of `-w`.
pub fn check_admin(argument: &str) -> Result<(), String> {
    let option = format!("-w {argument}: ");
    admin::check(argument).map_err(|fault| {
        let text = text_of(&fault);
        text.strip_prefix(&option).unwrap_or(&text).to_owned()
    })
}

/// Checks addresses for an account at a certificate authority.
pub fn check_contacts(text: &str) -> Result<(), String> {
    tls::check_contacts(text).map_err(|fault| text_of(&fault).replacen("acme_contact: ", "", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_one_line() {
        for (checked, text) in [
            (check_storage("malloc,1G"), ""),
            (check_storage("s1=disk,/nowhere/x,size=1G"), ""),
            (check_storage("disk,/x,sise=1G"), "unknown argument"),
            (check_storage("malloc,10"), "too small"),
            (check_storage("tape"), "Unknown stevedore"),
            (check_storage("persistent,/x"), "deprecated"),
            (check_admin("127.0.0.1:6083,token=/t"), ""),
            (check_admin("127.0.0.1:6083,tokn=/t"), "Invalid sub-arg tokn=/t"),
            (check_admin("otlp=ftp://x"), "begins with http"),
            (check_contacts("me@example.org"), ""),
            (check_contacts("me"), "not a mail address"),
        ] {
            match checked {
                Ok(()) => assert_eq!(text, ""),
                Err(found) => {
                    assert!(!text.is_empty() && found.contains(text) && !found.contains('\n'), "{found}");
                }
            }
        }
    }
}
