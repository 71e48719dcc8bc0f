//! The types of files by the extensions of their names, in the format of `/etc/mime.types`.

use std::collections::HashMap;

use lacquer_vcl_runtime::ModuleError;

/// The maximum size of the list in bytes.
const LONGEST: u64 = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct Types(HashMap<String, String>);

impl Types {
    pub fn read(path: &str) -> Result<Types, ModuleError> {
        let fault = |text: &dyn std::fmt::Display| ModuleError(format!("fileserver: {path}: {text}"));
        let size = std::fs::metadata(path).map_err(|error| fault(&error))?;
        if !size.is_file() || size.len() > LONGEST {
            return Err(fault(&"not a list of types"));
        }
        let text = std::fs::read_to_string(path).map_err(|error| fault(&error))?;
        Types::parse(path, &text)
    }

    fn parse(path: &str, text: &str) -> Result<Types, ModuleError> {
        let mut types = Types::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let Some(kind) = words.next().filter(|word| !word.starts_with('#')) else { continue };
            if !kind.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(format!("fileserver: error, in {path}, {kind:?} is not a type").into());
            }
            for extension in words {
                if let Some(before) = types.0.insert(extension.to_owned(), kind.to_owned()) {
                    return Err(format!(
                        "fileserver: error, in {path}, extension {extension} appears to have two types \
                         ({before} and {kind})"
                    )
                    .into());
                }
            }
        }
        Ok(types)
    }

    /// Returns the type of a file by its extension.
    pub fn of(&self, extension: &str) -> Option<&str> {
        self.0.get(extension).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::Types;

    #[test]
    fn extensions_have_one_type() {
        let types =
            Types::parse("f", "# a comment\napplication/pdf pdf\n\n  text/html  html htm\nimage/none")
                .unwrap();
        assert_eq!(types.of("htm"), Some("text/html"));
        assert_eq!((types.of("PDF"), types.of("a")), (None, None));
        let twice = Types::parse("f", "a/b txt\nc/d txt").unwrap_err().0;
        assert_eq!(twice, "fileserver: error, in f, extension txt appears to have two types (a/b and c/d)");
        assert!(Types::parse("f", "a/b\u{1}x txt").is_err(), "a type that would break a header");
        assert!(Types::read("/dev/zero").is_err());
    }
}
