//! Names and their meanings: a tree, split at the dots in names. Case is ignored.
//!
//! A node can have several symbols, for different language versions and, in VCL 4.0, different kinds.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::program::At;
use crate::signature::{ObjectSignature, Signature};
use crate::types::{HttpId, Type};
use crate::variables_table::Var;

/// The type of an expression during checking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fmt {
    Acl,
    Backend,
    Blob,
    Body,
    Bool,
    Bytes,
    Duration,
    Enum,
    Header,
    Http,
    Instance,
    Int,
    Ip,
    Probe,
    Real,
    Regex,
    Stevedore,
    Strands,
    String,
    /// A list of strings that becomes STRING or STRANDS.
    Strings,
    Sub,
    Time,
    Vcl,
    Void,
    /// The pseudo type of the symbol `default`.
    Default,
    /// An object type of a module: index into the checker's list.
    Object(u32),
}

impl From<Type> for Fmt {
    fn from(ty: Type) -> Fmt {
        match ty {
            Type::Void => Fmt::Void,
            Type::Bool => Fmt::Bool,
            Type::Int => Fmt::Int,
            Type::Real => Fmt::Real,
            Type::Bytes => Fmt::Bytes,
            Type::Duration => Fmt::Duration,
            Type::Time => Fmt::Time,
            Type::String => Fmt::String,
            Type::Strands => Fmt::Strands,
            Type::Ip => Fmt::Ip,
            Type::Blob => Fmt::Blob,
            Type::Backend => Fmt::Backend,
            Type::Probe => Fmt::Probe,
            Type::Acl => Fmt::Acl,
            Type::Sub => Fmt::Sub,
            Type::Stevedore => Fmt::Stevedore,
            Type::Header => Fmt::Header,
            Type::Http => Fmt::Http,
            Type::Enum => Fmt::Enum,
            Type::Regex => Fmt::Regex,
            Type::Body => Fmt::Body,
            Type::Instance => Fmt::Instance,
        }
    }
}

impl Fmt {
    pub fn ty(self) -> Type {
        match self {
            Fmt::Acl => Type::Acl,
            Fmt::Backend => Type::Backend,
            Fmt::Blob => Type::Blob,
            Fmt::Body => Type::Body,
            Fmt::Bool => Type::Bool,
            Fmt::Bytes => Type::Bytes,
            Fmt::Duration => Type::Duration,
            Fmt::Enum => Type::Enum,
            Fmt::Header => Type::Header,
            Fmt::Http => Type::Http,
            Fmt::Int => Type::Int,
            Fmt::Ip => Type::Ip,
            Fmt::Probe => Type::Probe,
            Fmt::Real => Type::Real,
            Fmt::Regex => Type::Regex,
            Fmt::Stevedore => Type::Stevedore,
            Fmt::Strands => Type::Strands,
            Fmt::String | Fmt::Strings => Type::String,
            Fmt::Sub => Type::Sub,
            Fmt::Time => Type::Time,
            Fmt::Void | Fmt::Vcl | Fmt::Default => Type::Void,
            Fmt::Instance | Fmt::Object(_) => Type::Instance,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Fmt::Strings => "STRINGS",
            Fmt::Vcl => "VCL",
            Fmt::Default => "DEFAULT",
            other => other.ty().name(),
        }
    }

    /// Returns the name for error texts, where all strings are STRING.
    pub fn user_name(self) -> &'static str {
        if self.is_string() { "STRING" } else { self.name() }
    }

    pub fn is_string(self) -> bool {
        matches!(self, Fmt::String | Fmt::Strands | Fmt::Strings)
    }

    /// Returns whether this is STRING or STRANDS, which are built from STRINGS.
    pub fn string_form(self) -> bool {
        matches!(self, Fmt::String | Fmt::Strands)
    }

    /// Returns the kind of global object with this type that can be referenced before its definition.
    pub fn global_kind(self) -> Option<Kind> {
        match self {
            Fmt::Acl => Some(Kind::Acl),
            Fmt::Backend => Some(Kind::Backend),
            Fmt::Probe => Some(Kind::Probe),
            Fmt::Sub => Some(Kind::Sub),
            Fmt::Instance => Some(Kind::Instance),
            _ => None,
        }
    }

    pub fn converts_to_string(self) -> bool {
        matches!(
            self,
            Fmt::Acl
                | Fmt::Backend
                | Fmt::Blob
                | Fmt::Bool
                | Fmt::Bytes
                | Fmt::Duration
                | Fmt::Enum
                | Fmt::Header
                | Fmt::Int
                | Fmt::Ip
                | Fmt::Real
                | Fmt::Stevedore
                | Fmt::Strands
                | Fmt::Time
        )
    }

    /// Returns the type that multiplies and divides values of this type.
    pub fn factor(self) -> Option<Fmt> {
        match self {
            Fmt::Int => Some(Fmt::Int),
            Fmt::Bytes | Fmt::Duration | Fmt::Real => Some(Fmt::Real),
            _ => None,
        }
    }

    /// Returns whether a value is an integer at run time.
    pub fn is_integral(self) -> bool {
        matches!(self, Fmt::Int | Fmt::Bytes)
    }

    pub fn is_float(self) -> bool {
        matches!(self, Fmt::Real | Fmt::Duration | Fmt::Time)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    None,
    Reserved,
    Acl,
    Action,
    Backend,
    Func,
    Instance,
    Method,
    Object,
    Probe,
    Sub,
    Var,
    Vcl,
    Vmod,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::None => "none",
            Kind::Reserved => "reserved",
            Kind::Acl => "acl",
            Kind::Action => "action",
            Kind::Backend => "backend",
            Kind::Func => "func",
            Kind::Instance => "instance",
            Kind::Method => "method",
            Kind::Object => "object",
            Kind::Probe => "probe",
            Kind::Sub => "sub",
            Kind::Var => "var",
            Kind::Vcl => "vcl",
            Kind::Vmod => "vmod",
        }
    }
}

/// The statements that begin with a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Ban,
    Call,
    HashData,
    If,
    New,
    Return,
    Set,
    Synthetic,
    Unset,
}

/// A function or method of a module.
#[derive(Clone, Debug)]
pub(crate) struct Callable {
    pub import: u32,
    /// The object type's name, or empty.
    pub object: String,
    pub signature: Rc<Signature>,
}

/// The meaning of a symbol, in addition to its kind.
#[derive(Clone, Debug)]
pub(crate) enum Meaning {
    Nothing,
    Action(Action),
    Var(Var),
    /// `req.http`: its children are headers.
    Headers(HttpId),
    Header(HttpId, u32),
    Storage(String),
    Truth(bool),
    Default,
    Regsub {
        all: bool,
    },
    Function(Callable),
    /// A method, qualified by its type instead of an object.
    Method,
    Object {
        import: u32,
        signature: Rc<ObjectSignature>,
        fmt: Fmt,
    },
    /// Index into the program's list for this kind.
    Global(u32),
}

pub(crate) type SymbolId = usize;
pub(crate) type NodeId = usize;
/// Index of a token in the token list.
pub(crate) type TokenId = usize;

#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub node: NodeId,
    /// The versions of the language that have the symbol.
    pub since: u32,
    pub until: u32,
    pub kind: Kind,
    pub fmt: Fmt,
    pub meaning: Meaning,
    pub access: Access,
    pub mentions: Mentions,
    /// A backend with `.via`.
    pub via: bool,
}

/// The methods in which a symbol may be used, as bits `1 << Method as u32`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    pub read: u32,
    pub write: u32,
    pub unset: u32,
    /// The methods in which an action is allowed. Zero means all.
    pub action: u32,
}

impl Access {
    /// Returns access to a variable.
    pub fn variable(read: u32, write: u32, unset: u32) -> Access {
        Access { read, write, unset, action: 0 }
    }
}

/// The places in the program that name a symbol.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mentions {
    pub defined: Option<TokenId>,
    pub referenced: Option<TokenId>,
    /// It is no mistake if the program does not use the symbol.
    pub may_be_unused: bool,
    pub references: u32,
    pub definitions: u32,
}

#[derive(Debug)]
struct Node {
    name: String,
    parent: Option<NodeId>,
    children: BTreeMap<String, NodeId>,
    symbols: Vec<SymbolId>,
}

#[derive(Debug)]
pub(crate) struct Symbols {
    nodes: Vec<Node>,
    pub list: Vec<Symbol>,
}

pub(crate) const LOWEST: u32 = 40;
pub(crate) const HIGHEST: u32 = 41;

impl Symbols {
    pub const ROOT: NodeId = 0;

    pub fn new() -> Symbols {
        let root = Node { name: String::new(), parent: None, children: BTreeMap::new(), symbols: Vec::new() };
        Symbols { nodes: vec![root], list: Vec::new() }
    }

    /// Returns the child node for the next part of a name. Creates it if it does not exist.
    pub fn child(&mut self, node: NodeId, name: &str) -> NodeId {
        let key = name.to_ascii_lowercase();
        if let Some(&child) = self.nodes[node].children.get(&key) {
            return child;
        }
        let child = self.nodes.len();
        let new = Node {
            name: name.to_owned(),
            parent: Some(node),
            children: BTreeMap::new(),
            symbols: Vec::new(),
        };
        self.nodes.push(new);
        self.nodes[node].children.insert(key, child);
        child
    }

    pub fn path(&mut self, dotted: &str) -> NodeId {
        dotted.split('.').fold(Symbols::ROOT, |node, part| self.child(node, part))
    }

    /// Returns the last part of a symbol's name, as first written.
    pub fn name(&self, symbol: SymbolId) -> &str {
        &self.nodes[self.list[symbol].node].name
    }

    pub fn node_name(&self, node: NodeId) -> &str {
        &self.nodes[node].name
    }

    pub fn full_name(&self, mut node: NodeId) -> String {
        let mut parts = Vec::new();
        while let Some(parent) = self.nodes[node].parent {
            parts.push(self.nodes[node].name.as_str());
            node = parent;
        }
        parts.reverse();
        parts.join(".")
    }

    pub fn add(&mut self, node: NodeId, kind: Kind, since: u32, until: u32) -> SymbolId {
        let id = self.list.len();
        self.list.push(Symbol {
            node,
            since,
            until,
            kind,
            fmt: Fmt::Void,
            meaning: Meaning::Nothing,
            access: Access::default(),
            mentions: Mentions::default(),
            via: false,
        });
        self.nodes[node].symbols.push(id);
        id
    }

    /// Adds a symbol of the language or of a module, which programs need not use.
    pub fn add_predefined(&mut self, name: &str, kind: Kind, fmt: Fmt, meaning: Meaning) -> SymbolId {
        let node = self.path(name);
        let id = self.add(node, kind, LOWEST, HIGHEST);
        let symbol = &mut self.list[id];
        symbol.mentions.may_be_unused = true;
        symbol.fmt = fmt;
        symbol.meaning = meaning;
        id
    }

    /// Returns the symbol at a node that matches the kind and the range of versions. `syntax` is the program's version.
    pub fn find(&self, node: NodeId, kind: Kind, low: u32, high: u32, syntax: u32) -> Option<SymbolId> {
        let wanted = |id: &SymbolId| {
            let symbol = &self.list[*id];
            let wildcard = matches!(symbol.meaning, Meaning::Headers(_));
            if symbol.since > high || symbol.until < low {
                return false;
            }
            if kind == Kind::None && symbol.kind == Kind::None && !wildcard {
                return false;
            }
            let own_namespace = syntax < 41 && self.nodes[node].name != "default";
            !(own_namespace && kind != Kind::None && kind != symbol.kind && !wildcard)
        };
        self.nodes[node].symbols.iter().copied().find(wanted)
    }

    /// Returns the message that the node is a header of, if its parent has headers.
    pub fn header_parent(&self, node: NodeId) -> Option<SymbolId> {
        let parent = self.nodes[node].parent?;
        let first = *self.nodes[parent].symbols.first()?;
        matches!(self.list[first].meaning, Meaning::Headers(_)).then_some(first)
    }

    pub fn is_headers(&self, symbol: SymbolId) -> bool {
        matches!(self.list[symbol].meaning, Meaning::Headers(_))
    }

    /// Returns all symbols in the order of their names.
    pub fn walk(&self) -> Vec<SymbolId> {
        let mut found = Vec::new();
        let mut stack = vec![Symbols::ROOT];
        while let Some(node) = stack.pop() {
            found.extend(&self.nodes[node].symbols);
            stack.extend(self.nodes[node].children.values().rev());
        }
        found
    }

    /// Returns the full names of all symbols, for hints.
    pub fn full_names(&self) -> impl Iterator<Item = String> + '_ {
        self.list.iter().map(|s| self.full_name(s.node))
    }
}

/// A use of a variable, function or action. It is checked when all calls are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub first: TokenId,
    /// The token after the last one.
    pub end: TokenId,
    pub what: UseKind,
    pub mask: u32,
    pub readable: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UseKind {
    Read,
    Write,
    Unset,
    Action,
}

impl UseKind {
    pub fn error_text(self) -> &'static str {
        match self {
            UseKind::Read => "Not available",
            UseKind::Write => "Cannot be set",
            UseKind::Unset => "Cannot be unset",
            UseKind::Action => "Not a valid action",
        }
    }
}

/// A subroutine during parsing and checking.
#[derive(Clone, Debug)]
pub(crate) struct Proc {
    pub symbol: SymbolId,
    pub method: Option<crate::types::Method>,
    /// The name's token in its first definition. `None` while the name is only referenced.
    pub name: Option<TokenId>,
    pub at: At,
    pub calls: Vec<(SymbolId, TokenId)>,
    pub uses: Vec<Use>,
    /// The actions it returns, as bits of `Action as u32`, and the first token of each.
    pub returns: u32,
    pub return_tokens: [Option<TokenId>; 19],
    pub active: bool,
    pub allowed: u32,
    pub called_from: u32,
}
