//! `--name value` pairs and bare `--name` switches.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;

const SWITCHES: [&str; 2] = ["sendfile", "close"];

pub struct Options(BTreeMap<String, String>);

impl Options {
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut map = BTreeMap::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or_else(|| format!("{word}: options begin with --"))?;
            let value = if SWITCHES.contains(&name) { Some("yes") } else { words.next().map(String::as_str) };
            let value = value.ok_or_else(|| format!("--{name} needs a value"))?;
            map.insert(name.to_owned(), value.to_owned());
        }
        Ok(Self(map))
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn text<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.0.get(name).map_or(default, String::as_str)
    }

    pub fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        match self.0.get(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("--{name} {text}: not a number")),
        }
    }

    pub fn address(&self, name: &str) -> Result<SocketAddr, String> {
        let text = self.0.get(name).ok_or_else(|| format!("--{name} ADDR is needed"))?;
        text.parse().map_err(|_| format!("--{name} {text}: not an address such as 127.0.0.1:9001"))
    }
}
