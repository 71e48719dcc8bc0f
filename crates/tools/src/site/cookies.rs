//! Names of cookies that the cache ignores.

use super::pattern::escaped;
use super::wrong::Wrong;

/// Which cookies are dropped: all, those with some names, or all except some.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CookieNames {
    /// Regular expressions for whole names. Without any of either kind, all cookies are dropped.
    dropped: Vec<String>,
    kept: Vec<String>,
}

impl CookieNames {
    /// Adds names, separated by commas or blanks. `*` stands for any text; a name after `!` is kept.
    pub fn add(&mut self, list: &str) -> Result<(), Wrong> {
        for name in list.split([',', ' ', ';']).filter(|name| !name.is_empty()) {
            let (list, name) = match name.strip_prefix('!') {
                Some(name) => (&mut self.kept, name),
                None => (&mut self.dropped, name),
            };
            list.push(expression(name)?);
        }
        Ok(())
    }

    /// Returns whether all cookies are dropped.
    pub fn is_all(&self) -> bool {
        self.kept.is_empty() && (self.dropped.is_empty() || self.dropped.iter().any(|name| name == ANY))
    }

    /// Returns a regular expression for the names of dropped cookies, without its anchor at the end.
    pub fn expression(&self) -> String {
        let dropped = if self.dropped.is_empty() { ANY.to_owned() } else { self.dropped.join("|") };
        if self.kept.is_empty() {
            return format!("^({dropped})");
        }
        format!("^(?!({})(=|$))({dropped})", self.kept.join("|"))
    }
}

const ANY: &str = "[^=;]*";

fn expression(name: &str) -> Result<String, Wrong> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "*!#$%&'+-.^_`|~:[]".contains(c);
    if name.is_empty() || name.len() > 200 || !name.chars().all(is_allowed) {
        return Err(Wrong::new(
            "it is not a list of names of cookies",
            "write names with commas between them: '_ga*,_gid'; * stands for any text, !NAME keeps a cookie",
        ));
    }
    Ok(name.chars().map(|c| if c == '*' { ANY.to_owned() } else { escaped(c) }).collect())
}
