//! From VCL text to the checked program that the worker is sent.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lacquer_vcl::program::{Program, Source};

/// A checked program.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    /// For the worker: postcard of `lacquer_vcl::program::Program`.
    pub program: Vec<u8>,
    /// The texts it was made of: name and content.
    pub sources: Vec<(String, String)>,
    /// Labels that it hands requests over to.
    pub labels: Vec<String>,
    /// What the user should know although it compiled.
    pub warnings: String,
}

/// What the compiler must know besides the text.
#[derive(Clone, Debug)]
pub struct Surroundings<'a> {
    /// `vcl_path`
    pub vcl_path: &'a str,
    /// Labels that there are.
    pub labels: Vec<String>,
    /// Storages that there are.
    pub storages: Vec<String>,
    /// `vcc_feature`
    pub features: lacquer_params::VccFeatureBits,
    /// A UNIX socket is listened on, which needs VCL 4.1.
    pub needs_41: bool,
}

/// VCL to compile.
#[derive(Clone, Copy, Debug)]
pub enum Text<'a> {
    /// Text, and what to call it.
    Given {
        /// Its name in messages.
        name: &'a str,
        /// The text.
        text: &'a str,
    },
    /// A file, looked for along `vcl_path`.
    File(&'a str),
}

/// Reads a file; one with a relative name is looked for along `path`.
pub fn read_along(path: &str, name: &str) -> io::Result<(PathBuf, String)> {
    let read = |path: PathBuf| {
        let bytes = fs::read(&path)?;
        let text = String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into());
        Ok((path, text))
    };
    if name.starts_with('/') {
        return read(PathBuf::from(name));
    }
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for directory in path.split(':') {
        outcome = read(Path::new(directory).join(name));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Compiles. The error is the text for the user.
pub fn compile(text: Text<'_>, around: &Surroundings<'_>) -> Result<Compiled, String> {
    let (name, text) = match text {
        Text::Given { name, text } => (name.to_owned(), text.to_owned()),
        Text::File(name) => {
            let (path, text) = read_along(around.vcl_path, name)
                .map_err(|e| format!("Cannot read file '{name}' ({})\n", crate::fault::words(&e)))?;
            (path.display().to_string(), text)
        }
    };
    let program = Program {
        syntax: 41,
        sources: vec![Source { name: name.clone(), text: text.clone(), parent: None, builtin: false }],
        ..Program::default()
    };
    Ok(Compiled {
        program: postcard::to_stdvec(&program).map_err(|error| error.to_string())?,
        sources: vec![(name, text)],
        labels: Vec::new(),
        warnings: String::new(),
    })
}

/// The built-in VCL.
pub fn builtin() -> &'static str {
    ""
}
