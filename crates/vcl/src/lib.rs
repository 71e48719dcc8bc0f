//! The VCL language: compiles text to a checked [`program::Program`], or returns diagnostics.
//!
//! The crate is pure: it reads files and looks up names only through the caller, so the manager, the command
//! `lacquer check` and the tests use the same language. Start at [`compile`].
#![forbid(unsafe_code)]

mod builtin;
mod check;
mod compiler;
mod decl_acl;
mod decl_backend;
mod decl_backend_tls;
mod decl_fields;
mod decl_import;
mod decl_probe;
pub mod diagnostics;
mod expr;
mod expr_call;
mod expr_literals;
mod expr_names;
mod expr_types;
mod hints;
mod include;
mod language_prose_table;
mod lexer;
pub mod lints;
mod literals;
mod names;
mod options;
pub mod places;
pub mod program;
mod regex;
mod report;
mod returns_table;
pub mod signature;
pub mod source;
mod stmt;
mod stmt_new;
mod symbols;
mod text;
pub mod tokens;
mod toplevel;
pub mod types;
mod value;
mod variables_prose_table;
pub mod variables_table;

pub use builtin::BUILTIN_VCL;
pub use diagnostics::{Diagnostic, Severity, vcc_text, vcl_load_text};
pub use language_prose_table::STATEMENTS;
pub use lints::lint;
pub use literals::is_host_name;
pub use options::Options;
pub use returns_table::{allowed_in, returns_of};
pub use signature::{Catalogue, NoModules};
pub use source::{Files, NoFiles, NumericResolver, Resolver, SocketKind};
pub use text::Text;

use program::Program;
use source::SourceText;

#[derive(Clone, Debug)]
pub struct Compiled {
    pub program: Program,
    pub warnings: Vec<Diagnostic>,
}

/// Compiles a text without a file; `name` is usually `<vcl.inline>`.
///
/// The error contains all diagnostics in their order, including warnings. At least the last one is an error.
pub fn compile(name: &str, text: impl Into<Text>, options: &Options) -> Result<Compiled, Vec<Diagnostic>> {
    let mut source = SourceText::new(name, text.into(), None);
    source.inline = true;
    compile_source(source, options)
}

/// Finds a file like `vcl.load` (by its absolute name, or in `vcl_path`) and compiles it.
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
    if compiler.report.errors() < options.max_errors {
        compiler.check_program();
    }
    compiler.count_other_folds();
    if compiler.report.errors() > 0 {
        return Err(compiler.report.into_diagnostics());
    }
    let (program, warnings) = compiler.finish();
    let sources = source::finish(texts.sources);
    Ok(Compiled { program: Program { sources, ..program }, warnings })
}
