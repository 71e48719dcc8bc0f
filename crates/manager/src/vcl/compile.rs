//! From VCL text to the checked program that the worker is sent.

use std::io;
use std::path::{Path, PathBuf};

use lacquer_params::VccFeatureBits;
use lacquer_vcl::{Options, Text, vcl_load_text};

use crate::environment;
use crate::machine::Machine;

/// A checked program.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    /// For the worker: postcard of `lacquer_vcl::program::Program`.
    pub program: Vec<u8>,
    /// The texts it was made of: name and content.
    pub sources: Vec<(String, Text)>,
    /// Modules that it imports, each once.
    pub modules: Vec<String>,
    /// Labels that it hands requests over to.
    pub labels: Vec<String>,
    /// Warnings for the user although it compiled.
    pub warnings: String,
}

/// The facts besides the text that the compiler needs.
#[derive(Clone, Debug)]
pub struct CompileContext {
    /// `vcl_path`
    pub vcl_path: String,
    /// Labels that there are.
    pub labels: Vec<String>,
    /// Storages that there are.
    pub storages: Vec<String>,
    /// `vcc_feature`
    pub features: VccFeatureBits,
    /// A UNIX socket is listened on, which needs VCL 4.1.
    pub needs_41: bool,
}

/// VCL to compile.
#[derive(Clone, Debug)]
pub enum Input {
    /// Text, and what to call it.
    Given {
        /// Its name in messages.
        name: String,
        /// The text.
        text: Vec<u8>,
    },
    /// A file, looked for along `vcl_path`.
    File(String),
}

/// Reads a file; one with a relative name is looked for along `path`.
pub fn read_along(path: &str, name: &str) -> io::Result<(PathBuf, Text)> {
    let read = |path: PathBuf| {
        let text = crate::machine::read_vcl(&path)?.into();
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

const TOO_OLD_FOR_UNIX_SOCKETS: &str = "Message from dlopen:\nCompiled VCL version (4.0) not supported.\nRunning dlopen failed, exited with 1\nVCL compilation failed";

/// Compiles. The error is the text for the user.
pub fn compile(text: Input, context: &CompileContext) -> Result<Compiled, String> {
    let options = Options {
        err_unref: context.features.has(VccFeatureBits::ERR_UNREF),
        unsafe_path: context.features.has(VccFeatureBits::UNSAFE_PATH),
        vcl_path: &context.vcl_path,
        storages: &context.storages,
        labels: &context.labels,
        ..Options::new(lacquer_vmods::catalogue(), &Machine, &Machine)
    };
    let outcome = match text {
        Input::Given { name, text } => lacquer_vcl::compile(&name, text, &options),
        Input::File(name) => lacquer_vcl::compile_file(&name, &options),
    };
    let compiled = outcome.map_err(|diagnostics| vcl_load_text(&diagnostics))?;
    let mut program = compiled.program;
    if context.needs_41 && program.syntax < 41 {
        return Err(TOO_OLD_FOR_UNIX_SOCKETS.to_owned());
    }
    program.environment = environment::mentioned(std::env::vars_os(), &program);
    // The worker has no use for the text.
    let sources = std::mem::take(&mut program.sources).into_iter().map(|source| (source.name, source.text));
    let mut modules: Vec<String> = Vec::new();
    for import in &program.imports {
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
