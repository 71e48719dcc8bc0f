//! The files of a VCL program that was compiled before, as they were then.

use lacquer_cli::glob;
use lacquer_vcl::program::IdentityPem;
use lacquer_vcl::{Files, SocketKind};

use crate::machine::Machine;

/// The texts by their names, the main text first. Other files are those of the machine.
pub struct SavedFiles<'a> {
    machine: &'a Machine,
    texts: Vec<(String, Vec<u8>)>,
}

impl<'a> SavedFiles<'a> {
    pub fn new(machine: &'a Machine, texts: Vec<(String, Vec<u8>)>) -> Self {
        Self { machine, texts }
    }

    /// Returns the name of the main text, and the text.
    pub fn main(&self) -> (String, Vec<u8>) {
        self.texts.first().cloned().unwrap_or_default()
    }

    fn find(&self, path: &str) -> Option<&Vec<u8>> {
        self.texts.iter().find(|(name, _)| name == path).map(|(_, text)| text)
    }
}

impl Files for SavedFiles<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        self.find(path).map_or_else(|| self.machine.read(path), |text| Ok(text.clone()))
    }

    fn exists(&self, path: &str) -> bool {
        self.find(path).is_some() || self.machine.exists(path)
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, String> {
        let names = self.texts.iter().skip(1).map(|(name, _)| name.clone());
        let mut found: Vec<String> = names.filter(|name| glob::matches_path(pattern, name)).collect();
        found.sort();
        found.dedup();
        if found.is_empty() { self.machine.glob(pattern) } else { Ok(found) }
    }

    fn socket(&self, path: &str) -> SocketKind {
        self.machine.socket(path)
    }

    fn authorities(&self, path: Option<&str>) -> Result<Vec<u8>, String> {
        self.machine.authorities(path)
    }

    fn identity(&self, certificate: &str, key: Option<&str>) -> Result<IdentityPem, String> {
        self.machine.identity(certificate, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_that_were_compiled() {
        let machine = Machine::new();
        let texts = [("/x/main.vcl", "a"), ("/x/part1.vcl", "b"), ("/x/part2.vcl", "c")];
        // Files that others include.
        let deeper = [("/x/parts/part4.vcl", "d"), ("/x/.part5.vcl", "e")];
        let texts = texts
            .into_iter()
            .chain(deeper)
            .map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()))
            .collect();
        let files = SavedFiles::new(&machine, texts);
        assert_eq!(files.main(), ("/x/main.vcl".to_owned(), b"a".to_vec()));
        assert_eq!(files.read("/x/part2.vcl").unwrap(), b"c");
        assert!(files.exists("/x/part1.vcl") && !files.exists("/x/part3.vcl"));
        assert_eq!(files.glob("/x/part*.vcl").unwrap(), ["/x/part1.vcl", "/x/part2.vcl"]);
        assert_eq!(files.glob("/x/*.vcl").unwrap(), ["/x/part1.vcl", "/x/part2.vcl"]);
        assert_eq!(files.glob("/x/*/*.vcl").unwrap(), ["/x/parts/part4.vcl"]);
        files.read("/x/part3.vcl").unwrap_err();
    }
}
