//! Compiles VCL text to the checked program that is sent to the worker.

use std::io;
use std::path::{Path, PathBuf};

use lacquer_params::VccFeatureBits;
use lacquer_vcl::{Diagnostic, Options, Text, vcl_load_text};

use crate::environment;
use crate::jail::Jail;
use crate::machine::Machine;
use crate::vcl::saved::SavedFiles;

/// A checked program.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    /// The program for the worker: `lacquer_vcl::program::Program` in postcard's format.
    pub program: Vec<u8>,
    /// Names and contents of the sources.
    pub sources: Vec<(String, Text)>,
    /// Imported modules, each once.
    pub modules: Vec<String>,
    /// Labels that it passes requests to.
    pub labels: Vec<String>,
    /// Warnings for the user.
    pub warnings: String,
}

/// The compiler's inputs besides the text.
#[derive(Clone, Debug)]
pub struct CompileContext {
    /// `vcl_path`
    pub vcl_path: String,
    /// Existing labels.
    pub labels: Vec<String>,
    /// Existing storages.
    pub storages: Vec<String>,
    /// `vcc_feature`
    pub features: VccFeatureBits,
    /// `dns_strict`
    pub strict_hosts: bool,
    /// Whether a listening socket is a UNIX socket, which requires VCL 4.1.
    pub needs_41: bool,
    /// The rights to read private keys.
    pub jail: Jail,
}

/// VCL to compile.
#[derive(Clone, Debug)]
pub enum Input {
    /// A text with its name.
    Given {
        /// Its name in messages.
        name: String,
        /// The text.
        text: Vec<u8>,
    },
    /// A file, searched in `vcl_path`.
    File(String),
    /// The texts of a program that was compiled before, with their names, the main text first.
    Saved(Vec<(String, Vec<u8>)>),
}

impl Input {
    /// Returns whether the program was compiled before.
    pub fn is_saved(&self) -> bool {
        matches!(self, Input::Saved(_))
    }
}

/// Reads a file. A relative name is searched in the directories of `path`.
pub fn read_along(path: &str, name: &str) -> io::Result<(PathBuf, Text)> {
    let read = |path: PathBuf| {
        let text = crate::regular_file::read_vcl(&path)?.into();
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

const TOO_OLD_FOR_UNIX_SOCKETS: &str = "Message from dlopen:\nCompiled VCL version (4.0) not supported.\nRunning dlopen failed, exited with 1\n\
    VCL compilation failed\n\
    A listener of -a is a UNIX socket, which VCL 4.0 cannot describe: write `vcl 4.1;` in the first line.";

/// Returns the text of `vcl.load`, and the hints after it.
fn error_text(diagnostics: &[Diagnostic]) -> String {
    let mut text = vcl_load_text(diagnostics);
    for hint in diagnostics.iter().filter_map(|d| d.hint.as_ref()) {
        text.push_str("\nHint: ");
        text.push_str(hint);
    }
    text
}

/// Compiles a program. The error is the text for the user.
pub fn compile(text: Input, context: &CompileContext) -> Result<Compiled, String> {
    let machine = Machine::with_jail(context.jail.clone());
    let options = Options {
        err_unref: context.features.has(VccFeatureBits::ERR_UNREF),
        unsafe_path: context.features.has(VccFeatureBits::UNSAFE_PATH),
        strict_hosts: context.strict_hosts,
        vcl_path: &context.vcl_path,
        storages: &context.storages,
        labels: &context.labels,
        ..Options::new(lacquer_vmods::catalogue(), &machine, &machine)
    };
    let outcome = match text {
        Input::Saved(texts) => {
            let files = SavedFiles::new(&machine, texts);
            let (name, text) = files.main();
            lacquer_vcl::compile(&name, text, &Options { files: &files, ..options })
        }
        Input::Given { name, text } => lacquer_vcl::compile(&name, text, &options),
        Input::File(name) => lacquer_vcl::compile_file(&name, &options),
    };
    let compiled = outcome.map_err(|diagnostics| error_text(&diagnostics))?;
    let mut program = compiled.program;
    if context.needs_41 && program.syntax < 41 {
        return Err(TOO_OLD_FOR_UNIX_SOCKETS.to_owned());
    }
    program.environment = environment::mentioned(std::env::vars_os(), &program);
    // The worker names lines of the text in the header X-Lacquer-Why.
    let sources = program.sources.iter().map(|source| (source.name.clone(), source.text.clone()));
    let mut modules: Vec<String> = Vec::new();
    for import in &program.modules.imports {
        if !modules.contains(&import.module) {
            modules.push(import.module.clone());
        }
    }
    Ok(Compiled {
        modules,
        program: postcard::to_stdvec(&program).map_err(|error| error.to_string())?,
        sources: sources.collect(),
        labels: program.labels,
        warnings: vcl_load_text(&compiled.warnings),
    })
}
