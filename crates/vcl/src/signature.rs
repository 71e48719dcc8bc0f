//! The interface of a module in VCL, parsed from the notation of Varnish's `.vcc` files.
//!
//! `$Function BOOL fnmatch(STRING pattern, STRING subject, BOOL pathname=1)`, `$Object random()`,
//! `$Method VOID .add_backend(BACKEND, REAL)`, `$Restrict client`, `$Alias old new`. Text between the
//! stanzas is the documentation of the preceding function.

use crate::types::{Method, Type};
use crate::variables_table::{ALL, BACKEND, CLIENT};

/// The modules that the checker can find by name.
pub trait Catalogue {
    fn module(&self, name: &str) -> Option<ModuleSignatures>;

    /// Returns the names of all modules, for hints.
    fn names(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// A catalogue without modules.
pub struct NoModules;

impl Catalogue for NoModules {
    fn module(&self, _name: &str) -> Option<ModuleSignatures> {
        None
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleSignatures {
    pub name: String,
    /// The words of `$Module` after name and section.
    pub description: String,
    pub functions: Vec<Signature>,
    pub objects: Vec<ObjectSignature>,
    /// Pairs of old and new name; for methods `object.old` and `object.new`.
    pub aliases: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObjectSignature {
    pub name: String,
    /// The constructor. Its type is VOID.
    pub init: Signature,
    pub methods: Vec<Signature>,
    /// Whether the constructor may create no object without failing the load.
    pub null_ok: bool,
}

/// A function, method or constructor.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// The name, without the leading dot of methods.
    pub name: String,
    pub returns: Type,
    pub params: Vec<Param>,
    /// The methods that it may be called from, as bits `1 << Method as u32`.
    pub allowed: u32,
    pub doc: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub kind: ParamKind,
    pub name: Option<String>,
    /// The default as written, without the quotes of strings. An undefined string is `NULL`.
    pub default: Option<String>,
    /// Whether it is in brackets: the function can check whether it was given, so no default is filled in.
    pub optional: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ParamKind {
    Value(Type),
    Enum(Vec<String>),
    Private(Private),
}

/// The lifetime of a module's private state. Such parameters are not passed as arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Private {
    Call,
    Task,
    Top,
    Vcl,
}

impl Param {
    pub fn ty(&self) -> Type {
        match self.kind {
            ParamKind::Value(ty) => ty,
            ParamKind::Enum(_) => Type::Enum,
            ParamKind::Private(_) => Type::Void,
        }
    }

    pub(crate) fn is_private(&self) -> bool {
        matches!(self.kind, ParamKind::Private(_))
    }
}

impl Signature {
    /// Returns the methods that the function may be called from. One with state for the top request is restricted to
    /// the client's side.
    pub(crate) fn readable(&self) -> u32 {
        if self.has_private(Private::Top) { self.allowed & CLIENT } else { self.allowed }
    }

    /// Returns the parameters that have a slot in `ExprKind::Call::args`, in order.
    pub fn slots(&self) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(|p| !p.is_private())
    }

    pub(crate) fn has_private(&self, private: Private) -> bool {
        self.params.iter().any(|p| p.kind == ParamKind::Private(private))
    }
}

impl ModuleSignatures {
    pub fn function(&self, name: &str) -> Option<&Signature> {
        let name = self.resolve_alias(name);
        self.functions.iter().find(|f| f.name == name)
    }

    pub fn object(&self, name: &str) -> Option<&ObjectSignature> {
        self.objects.iter().find(|o| o.name == name)
    }

    fn resolve_alias<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.iter().find(|(old, _)| old == name).map_or(name, |(_, new)| new)
    }
}

impl ObjectSignature {
    pub fn method(&self, name: &str) -> Option<&Signature> {
        self.methods.iter().find(|m| m.name == name)
    }
}

/// An error in the notation, made by the author of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureError {
    pub stanza: String,
    pub message: String,
}

impl std::fmt::Display for SignatureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in \"{}\"", self.message, self.stanza)
    }
}

impl std::error::Error for SignatureError {}

/// Parses a module's signatures. `name` is used if the text has no `$Module`.
pub fn parse_module(name: &str, text: &str) -> Result<ModuleSignatures, SignatureError> {
    let mut module = ModuleSignatures { name: name.to_owned(), ..ModuleSignatures::default() };
    let mut last = Last::Nothing;
    for (stanza, doc) in stanzas(text) {
        let fail = |message: String| SignatureError { stanza: stanza.to_owned(), message };
        let tokens = tokenize(stanza);
        let mut parser = Parser { tokens: &tokens, next: 1 };
        match tokens.first().map(|t| t.text.as_str()) {
            Some("$Function") => {
                let returns = parser.ty().map_err(fail)?;
                let mut function = parser.signature(returns).map_err(fail)?;
                doc.clone_into(&mut function.doc);
                module.functions.push(function);
                last = Last::Function;
            }
            Some("$Object") => {
                let null_ok = parser.take("NULL_OK");
                let mut init = parser.signature(Type::Void).map_err(fail)?;
                doc.clone_into(&mut init.doc);
                let name = init.name.clone();
                module.objects.push(ObjectSignature { name, init, methods: Vec::new(), null_ok });
                last = Last::Method;
            }
            Some("$Method") => {
                let returns = parser.ty().map_err(fail)?;
                let mut method = parser.signature(returns).map_err(fail)?;
                doc.clone_into(&mut method.doc);
                method.name.retain(|c| c != '.');
                let object = module.objects.last_mut();
                object.ok_or_else(|| fail("$Method without $Object".to_owned()))?.methods.push(method);
                last = Last::Method;
            }
            Some("$Restrict") => {
                let target = match last {
                    Last::Function => module.functions.last_mut(),
                    Last::Method => module.objects.last_mut().and_then(|o| o.methods.last_mut()),
                    Last::Nothing => None,
                };
                let target = target.ok_or_else(|| fail("$Restrict without $Function".to_owned()))?;
                target.allowed = restrict(&tokens[1..]).map_err(fail)?;
            }
            Some("$Alias") if tokens.len() == 3 => {
                let (old, new) = (&tokens[1].text, &tokens[2].text);
                // `$Alias .old object.new` for methods, or `.old .new` of the current object.
                let object = match new.split_once('.') {
                    Some(("", _)) | None => module.objects.last().map_or("", |o| &o.name),
                    Some((object, _)) => object,
                };
                let full = |name: &str| match name.strip_prefix('.') {
                    Some(method) => format!("{object}.{method}"),
                    None => name.to_owned(),
                };
                let alias = (full(old), full(new));
                module.aliases.push(alias);
            }
            Some("$Module") if tokens.len() > 2 => {
                tokens[1].text.clone_into(&mut module.name);
                let words: Vec<&str> = tokens[3..].iter().map(|t| t.text.as_str()).collect();
                module.description = words.join(" ");
            }
            Some("$ABI" | "$Prefix" | "$Synopsis" | "$Event") => {}
            _ => return Err(fail("unknown stanza".to_owned())),
        }
    }
    Ok(module)
}

enum Last {
    Nothing,
    Function,
    Method,
}

fn restrict(words: &[Token]) -> Result<u32, String> {
    let mut allowed = 0;
    for word in words {
        allowed |= match word.text.as_str() {
            "client" => CLIENT,
            "backend" => BACKEND,
            "housekeeping" => 1 << Method::Init as u32 | 1 << Method::Fini as u32,
            name => match Method::ALL.iter().find(|m| m.sub_name() == name) {
                Some(method) => 1 << *method as u32,
                None => return Err(format!("invalid scope for $Restrict: {name}")),
            },
        };
    }
    Ok(allowed)
}

/// Splits the text into stanzas, each with the documentation that follows it.
fn stanzas(text: &str) -> Vec<(&str, &str)> {
    let mut starts = Vec::new();
    let mut at_line_start = true;
    let mut in_doc = true;
    for (i, c) in text.char_indices() {
        let keyword =
            text[i..].starts_with('$') && text[i + 1..].starts_with(|c: char| c.is_ascii_uppercase());
        if keyword && (at_line_start || (!in_doc && text[..i].ends_with(' '))) {
            starts.push(i);
            in_doc = false;
        }
        if c == '\n' {
            in_doc |= at_line_start;
            at_line_start = true;
        } else if !c.is_whitespace() {
            at_line_start = false;
        }
    }
    let mut found = Vec::new();
    for (n, &start) in starts.iter().enumerate() {
        let end = starts.get(n + 1).copied().unwrap_or(text.len());
        let whole = &text[start..end];
        let one_line = ["$Restrict", "$Alias", "$Module", "$Event"].iter().any(|w| whole.starts_with(w));
        let end = if one_line { whole.find('\n') } else { blank_line(whole) };
        let split = end.unwrap_or(whole.len());
        found.push((whole[..split].trim(), whole[split..].trim()));
    }
    found
}

fn blank_line(text: &str) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.trim().is_empty() {
            return Some(at);
        }
        at += line.len();
    }
    None
}

#[derive(Debug)]
struct Token {
    text: String,
    quoted: bool,
}

fn tokenize(stanza: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = stanza.chars().peekable();
    while let Some(&c) = chars.peek() {
        if c.is_whitespace() {
            chars.next();
        } else if c == '"' || c == '\'' {
            chars.next();
            let mut text = String::new();
            while let Some(q) = chars.next() {
                match q {
                    '\\' => text.extend(chars.next()),
                    q if q == c => break,
                    q => text.push(q),
                }
            }
            tokens.push(Token { text, quoted: true });
        } else if "[](){},=".contains(c) {
            chars.next();
            tokens.push(Token { text: c.to_string(), quoted: false });
        } else {
            let mut text = String::new();
            while let Some(&w) = chars.peek() {
                if w.is_whitespace() || "[](){},=\"".contains(w) {
                    break;
                }
                text.push(w);
                chars.next();
            }
            tokens.push(Token { text, quoted: false });
        }
    }
    tokens
}

struct Parser<'a> {
    tokens: &'a [Token],
    next: usize,
}

impl Parser<'_> {
    fn peek(&self) -> &str {
        self.tokens.get(self.next).filter(|t| !t.quoted).map_or("", |t| &t.text)
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.peek() == text;
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        if self.take(text) { Ok(()) } else { Err(format!("expected '{text}', got '{}'", self.peek())) }
    }

    fn word(&mut self) -> Result<String, String> {
        let token = self.tokens.get(self.next).ok_or("unexpected end of text")?;
        self.next += 1;
        Ok(token.text.clone())
    }

    fn ty(&mut self) -> Result<Type, String> {
        let word = self.word()?;
        Type::from_name(&word).ok_or(format!("expected a type, got '{word}'"))
    }

    fn signature(&mut self, returns: Type) -> Result<Signature, String> {
        let name = self.word()?;
        self.expect("(")?;
        let mut params: Vec<Param> = Vec::new();
        while !self.take(")") {
            if !params.is_empty() {
                self.expect(",")?;
            }
            let optional = self.take("[");
            let param = self.param(optional)?;
            if param.name.is_some() && params.iter().any(|p| p.name == param.name) {
                return Err(format!("duplicate argument name '{}'", param.name.unwrap_or_default()));
            }
            if optional {
                self.expect("]")?;
                if param.name.is_none() {
                    return Err("optional arguments must have names".to_owned());
                }
            }
            params.push(param);
        }
        if self.next != self.tokens.len() {
            return Err(format!("unexpected '{}' after ')'", self.peek()));
        }
        Ok(Signature { name, returns, params, allowed: ALL, doc: String::new() })
    }

    fn param(&mut self, optional: bool) -> Result<Param, String> {
        let kind = self.param_kind()?;
        let mut param = Param { kind, name: None, default: None, optional };
        if !matches!(self.peek(), "," | ")" | "]") {
            // `vcl_name:c_name` consists of two names. VCL uses the first.
            let word = self.word()?;
            param.name = Some(word.split(':').next().unwrap_or_default().to_owned());
            if self.take("=") {
                let quoted = self.tokens.get(self.next).is_some_and(|t| t.quoted);
                let word = self.word()?;
                let null = word == "0" && !quoted && matches!(param.ty(), Type::String | Type::Strands);
                param.default = Some(if null { "NULL".to_owned() } else { word });
            }
        }
        Ok(param)
    }

    fn param_kind(&mut self) -> Result<ParamKind, String> {
        let private = match self.peek() {
            "PRIV_CALL" => Some(Private::Call),
            "PRIV_TASK" => Some(Private::Task),
            "PRIV_TOP" => Some(Private::Top),
            "PRIV_VCL" => Some(Private::Vcl),
            _ => None,
        };
        if let Some(private) = private {
            self.next += 1;
            return Ok(ParamKind::Private(private));
        }
        let ty = self.ty()?;
        match ty {
            Type::Void => Err("arguments cannot be of type 'VOID'".to_owned()),
            Type::Enum => {
                let mut values = Vec::new();
                self.expect("{")?;
                loop {
                    values.push(self.word()?);
                    if self.take("}") {
                        return Ok(ParamKind::Enum(values));
                    }
                    self.expect(",")?;
                }
            }
            ty => Ok(ParamKind::Value(ty)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_objects_are_parsed() {
        let text = "$Module demo 3 \"A demo\"\n\n\
            $Function STRING join(PRIV_CALL, STRANDS s, STRING sep=\", \", ENUM {A, \"B\"} by=A)\n\n\
            Joins, for $5.\n\n\
            $Function BOOL is() $Restrict client vcl_init\n\
            $Object NULL_OK thing(REAL x = 1.5)\n\n\
            $Method VOID .poke([BACKEND be], [BOOL bool:boolean=0])\n\
            $Restrict backend\n\
            $Alias .push .poke\n\
            $Alias .shove thing.poke\n\
            $Alias joined join\n";
        let module = parse_module("x", text).unwrap();
        assert_eq!((module.name.as_str(), module.description.as_str()), ("demo", "A demo"));
        let join = module.function("joined").unwrap();
        assert_eq!(join.doc, "Joins, for $5.");
        assert_eq!(join.slots().count(), 3);
        assert_eq!(join.params[2].default.as_deref(), Some(", "));
        assert_eq!(join.params[3].kind, ParamKind::Enum(vec!["A".to_owned(), "B".to_owned()]));
        assert_eq!(module.function("is").unwrap().allowed, CLIENT | 1 << Method::Init as u32);
        let thing = module.object("thing").unwrap();
        assert!(thing.null_ok);
        assert_eq!(thing.init.params[0].default.as_deref(), Some("1.5"));
        let poke = thing.method("poke").unwrap();
        assert_eq!(poke.allowed, BACKEND);
        assert_eq!(poke.params[1].name.as_deref(), Some("bool"));
        assert!(poke.params[0].optional);
        assert_eq!(module.aliases[0], ("thing.push".to_owned(), "thing.poke".to_owned()));
        assert_eq!(module.aliases[1], ("thing.shove".to_owned(), "thing.poke".to_owned()));
    }

    #[test]
    fn invalid_notation_is_refused() {
        for text in
            ["$Function BOOL x(", "$Function x()", "$Method VOID .a()", "$Function VOID f(VOID)", "$Foo"]
        {
            assert!(parse_module("x", text).is_err(), "{text}");
        }
    }
}
