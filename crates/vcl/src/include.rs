//! Builds one list of tokens from the main text, its includes at their positions, and the built-in VCL at the end.

use crate::diagnostics::{Diagnostic, Piece, Severity};
use crate::lexer::{LexError, Tok, Token, lex, string_content};
use crate::options::Options;
use crate::source::{self, SourceText, Span};
use crate::text::Text;

pub(crate) struct Texts {
    pub sources: Vec<SourceText>,
    pub tokens: Vec<Token>,
    pub errors: Vec<Diagnostic>,
}

/// An error was added to `report`.
struct Stop;

struct Loader<'a> {
    options: &'a Options<'a>,
    sources: Vec<SourceText>,
    tokens: Vec<Token>,
    report: Diagnostic,
}

/// Lexes the main text with its includes, then the built-in VCL.
pub(crate) fn load(main: SourceText, builtin: &str, options: &Options) -> Texts {
    let mut loader =
        Loader { options, sources: Vec::new(), tokens: Vec::new(), report: Diagnostic::new(Severity::Error) };
    let mut predefined = SourceText::new("<builtin>", builtin.into(), None);
    predefined.builtin = true;
    let result = loader.source(main, 0, false).and_then(|()| loader.source(predefined, 0, true));
    let errors = if result.is_err() {
        crate::hints::improve(&mut loader.report);
        vec![loader.report]
    } else {
        Vec::new()
    };
    Texts { sources: loader.sources, tokens: loader.tokens, errors }
}

/// Finds a file like `include` and `vcl.load`: by its absolute name, or in a directory of `vcl_path`. Returns its full
/// name and text, or the error as text.
pub(crate) fn find_file(name: &str, options: &Options) -> Result<(String, Text), String> {
    if !options.unsafe_path && name.contains('/') {
        return Err(format!("VCL filename '{name}' is unsafe.\n"));
    }
    let candidate = if name.starts_with('/') {
        Some(name.to_owned())
    } else {
        let in_path = options.vcl_path.split(':').filter(|d| !d.is_empty()).map(|d| format!("{d}/{name}"));
        in_path.into_iter().find(|path| options.files.exists(path))
    };
    let Some(path) = candidate else {
        return Err(format!("Cannot read file '{name}' (No such file or directory)\n"));
    };
    match options.files.read(&path) {
        Ok(text) => Ok((path, text.into())),
        Err(error) => Err(format!("Cannot read file '{path}' ({error})\n")),
    }
}

impl Loader<'_> {
    fn add_text(&mut self, text: impl Into<String>) {
        self.report.pieces.push(Piece::Text(text.into()));
    }

    fn show(&mut self, span: Span) {
        let place = source::place(&self.sources, span);
        self.report.pieces.push(Piece::Place(place));
    }

    fn fail<T>(&mut self, text: impl Into<String>, span: Span) -> Result<T, Stop> {
        self.add_text(text);
        self.show(span);
        Err(Stop)
    }

    fn source(&mut self, source: SourceText, depth: usize, is_last: bool) -> Result<(), Stop> {
        let mut parent = source.parent;
        while let Some((index, _)) = parent {
            let by = &self.sources[index as usize];
            if by.name == source.name && by.inline == source.inline {
                let text = format!("Recursive use of file \"{}\"\n\n", source.name);
                self.add_text(text);
                return Err(Stop);
            }
            parent = by.parent;
        }
        if depth > self.options.max_include_depth {
            let text = format!("Includes nest deeper than {} files.\n", self.options.max_include_depth);
            self.add_text(text);
            return Err(Stop);
        }
        let index = self.sources.len() as u32;
        if u32::try_from(source.text.len()).is_err() {
            let text = format!("File \"{}\" is too large.\n", source.name);
            self.add_text(text);
            return Err(Stop);
        }
        let lexed = lex(index, &source.text);
        self.sources.push(source);
        let tokens = match lexed {
            Ok(tokens) => tokens,
            Err(LexError { message, spans }) => {
                self.add_text(message);
                for span in spans {
                    let text = &self.sources[index as usize].text;
                    self.report.hint = crate::hints::for_lexical_error(text, span.start as usize);
                    self.show(span);
                }
                return Err(Stop);
            }
        };
        let mut at = 0;
        while at < tokens.len() {
            let token = tokens[at];
            if token.kind == Tok::Eoi && !is_last {
                break;
            }
            if token.kind == Tok::Id && self.bytes(token) == b"include" {
                at = self.include(&tokens, at, depth)?;
            } else {
                self.tokens.push(token);
            }
            at += 1;
        }
        Ok(())
    }

    fn bytes(&self, token: Token) -> &[u8] {
        let span = token.span;
        &self.sources[span.source as usize].text[span.start as usize..span.end as usize]
    }

    /// Processes an include directive. Returns the index of its semicolon.
    fn include(&mut self, tokens: &[Token], at: usize, depth: usize) -> Result<usize, Stop> {
        let token = |i: usize| tokens[i.min(tokens.len() - 1)];
        let mut name = at + 1;
        let mut glob = false;
        while let Tok::Plus | Tok::Minus = token(name).kind {
            let (sign, flag) = (token(name), token(name + 1));
            if flag.span.start != sign.span.end {
                self.add_text("Expected a flag at:\n");
                self.show(sign.span);
                break;
            }
            if self.bytes(flag) != b"glob" {
                return self.fail("Unknown include flag:\n", flag.span);
            }
            glob = sign.kind == Tok::Plus;
            name += 2;
        }
        let file = token(name);
        if file.kind != Tok::Cstr {
            return self.fail("include not followed by string constant.\n", file.span);
        }
        if token(name + 1).kind != Tok::Semi {
            return self.fail("include <string> not followed by semicolon.\n", file.span);
        }
        let path = self.include_path(file)?;
        let included = if glob {
            self.include_glob(&path, file.span, depth)
        } else {
            self.include_file(&path, file.span, depth)
        };
        if included.is_err() {
            if self.report.hint.is_none() && !path.starts_with('/') {
                self.report.hint = Some(self.hint_for_relative(&path, file));
            }
            self.show(file.span);
            return Err(Stop);
        }
        Ok(name + 1)
    }

    /// Returns the file name; `./` is resolved relative to the including file.
    fn include_path(&mut self, file: Token) -> Result<String, Stop> {
        let path = String::from_utf8_lossy(string_content(self.bytes(file))).into_owned();
        let Some(rest) = path.strip_prefix("./") else { return Ok(path) };
        let by = &self.sources[file.span.source as usize].name;
        let Some((directory, _)) = by.rsplit_once('/').filter(|_| by.starts_with('/')) else {
            let message = "include \"./xxxxx\"; needs absolute filename of including file.\n";
            self.report.hint = Some("this text has no folder; write the whole name of the file".to_owned());
            return self.fail(message, file.span);
        };
        Ok(format!("{directory}/{rest}"))
    }

    /// Returns the hint for a relative name that is in no folder of `vcl_path`.
    fn hint_for_relative(&self, path: &str, file: Token) -> String {
        let by = &self.sources[file.span.source as usize].name;
        let beside = by.rsplit_once('/').filter(|_| by.starts_with('/'));
        if beside.is_some_and(|(folder, _)| self.options.files.exists(&format!("{folder}/{path}"))) {
            return format!("for the file beside this one, write \"./{path}\"");
        }
        format!("no folder of the parameter vcl_path ({}) contains it", self.options.vcl_path)
    }

    fn include_file(&mut self, path: &str, by: Span, depth: usize) -> Result<(), Stop> {
        match find_file(path, self.options) {
            Ok((name, text)) => {
                let source = SourceText::new(&name, text, Some((by.source, by.start)));
                self.source(source, depth + 1, false)
            }
            Err(error) => {
                self.add_text(error);
                Err(Stop)
            }
        }
    }

    fn include_glob(&mut self, pattern: &str, by: Span, depth: usize) -> Result<(), Stop> {
        if !pattern.starts_with('/') {
            self.add_text(
                "+glob can only be used with absolute paths or relative paths starting with './'\n",
            );
            return Err(Stop);
        }
        let files = match self.options.files.glob(pattern) {
            Ok(files) if files.is_empty() => {
                self.add_text("glob pattern matched no files.\n");
                return Err(Stop);
            }
            Ok(files) => files,
            Err(error) => {
                self.add_text(format!("glob(3) expansion failed ({error})\n"));
                return Err(Stop);
            }
        };
        files.iter().try_for_each(|file| self.include_file(file, by, depth))
    }
}
