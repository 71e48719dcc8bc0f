//! The VCL language: text in, checked [`program::Program`] or diagnostics out.
//!
//! A pure crate: it reads files and looks up names only through the caller, so that the manager, the
//! `lacquer check` command and the tests see the same language. Start at [`compile`].
#![forbid(unsafe_code)]

mod builtin;
mod check;
mod compiler;
mod decl_acl;
mod decl_backend;
mod decl_import;
mod decl_probe;
pub mod diagnostics;
mod expr;
mod expr_call;
mod expr_ops;
mod hints;
mod include;
mod lexer;
pub mod lints;
mod literals;
mod names;
pub mod program;
mod regex;
mod returns_table;
pub mod signature;
pub mod source;
mod stmt;
mod symbols;
mod text;
mod toplevel;
pub mod types;
mod variables_prose_table;
pub mod variables_table;

pub use builtin::BUILTIN_VCL;
pub use diagnostics::{Diagnostic, Severity, vcc_text, vcl_load_text};
pub use lints::lint;
pub use signature::{Catalogue, NoModules};
pub use source::{Files, NoFiles, NumericResolver, Resolver, SocketKind};
pub use text::Text;

use program::Program;
use source::SourceText;

/// What a compilation depends on besides the text.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    pub catalogue: &'a dyn Catalogue,
    pub files: &'a dyn Files,
    pub resolver: &'a dyn Resolver,
    /// Instead of the built-in VCL.
    pub builtin: Option<&'a str>,
    /// Parameter `vcc_feature`, bit by bit. `allow_inline_c` has no effect: inline C is refused always.
    pub err_unref: bool,
    pub unsafe_path: bool,
    /// Parameter `vcl_path`: directories with colons between them.
    pub vcl_path: &'a str,
    /// Names of the storages, as in `storage.<name>`.
    pub storages: &'a [String],
    /// Names that `return (vcl(name))` may give.
    pub labels: &'a [String],
    pub max_include_depth: usize,
    /// Stop after so many errors. With 1 the text is the one of `vcl.load`.
    pub max_errors: usize,
}

impl<'a> Options<'a> {
    pub fn new(
        catalogue: &'a dyn Catalogue,
        files: &'a dyn Files,
        resolver: &'a dyn Resolver,
    ) -> Options<'a> {
        Options {
            catalogue,
            files,
            resolver,
            builtin: None,
            err_unref: true,
            unsafe_path: true,
            vcl_path: "/etc/varnish:/usr/share/varnish/vcl",
            storages: &[],
            labels: &[],
            max_include_depth: 64,
            max_errors: 1,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Compiled {
    pub program: Program,
    pub warnings: Vec<Diagnostic>,
}

/// Compiles a text that came without a file; `name` is usually `<vcl.inline>`.
///
/// The error has all diagnostics in their order, warnings included; the last one or more are errors.
pub fn compile(name: &str, text: impl Into<Text>, options: &Options) -> Result<Compiled, Vec<Diagnostic>> {
    let mut source = SourceText::new(name, text.into(), None);
    source.inline = true;
    compile_source(source, options)
}

/// Finds a file as `vcl.load` does (absolute, or in `vcl_path`) and compiles it.
pub fn compile_file(name: &str, options: &Options) -> Result<Compiled, Vec<Diagnostic>> {
    match include::find_file(name, options) {
        Ok((path, text)) => compile_source(SourceText::new(&path, text, None), options),
        Err(error) => Err(vec![Diagnostic::plain_error(error)]),
    }
}

fn compile_source(source: SourceText, options: &Options) -> Result<Compiled, Vec<Diagnostic>> {
    let builtin = options.builtin.unwrap_or(BUILTIN_VCL);
    let texts = include::load(source, builtin, options);
    if !texts.errors.is_empty() {
        return Err(texts.errors);
    }
    let mut compiler = compiler::Compiler::new(options, &texts.sources, &texts.tokens);
    compiler.declare_language();
    compiler.survey();
    compiler.parse_program();
    if compiler.errors < options.max_errors {
        compiler.check_program();
    }
    if compiler.errors > 0 {
        return Err(compiler.diagnostics);
    }
    let (program, warnings) = compiler.finish();
    let sources = source::finish(texts.sources);
    Ok(Compiled { program: Program { sources, ..program }, warnings })
}
