//! Common parts of the tests: a catalogue, files in memory, and expressions as short text.
#![allow(dead_code)] // each test program uses some of it

use std::collections::BTreeMap;

use lacquer_vcl::program::{Expr, ExprKind, IdentityPem, Program, Stmt};
use lacquer_vcl::signature::{Catalogue, ModuleSignatures, parse_module};
use lacquer_vcl::{Compiled, Diagnostic, Files, NumericResolver, Options, SocketKind, compile, vcc_text};

pub struct Modules;

const STD: &str = "
$Function VOID log(STRANDS s)
$Function STRING toupper(STRANDS s)
$Function INT integer([STRING s], [INT fallback], [BOOL bool:boolean], [REAL real])
$Function BOOL fnmatch(STRING pattern, STRING subject, BOOL pathname=1, BOOL noescape=0)
$Function STRING fileread(PRIV_CALL, STRING)
$Function TIME real2time(REAL r, TIME fallback)
$Function VOID collect(HEADER hdr, STRING sep=\", \")
$Function VOID rollback(HTTP h)
$Function DURATION timed_call(SUB)
$Function REAL pick(ENUM {ONE, TWO} which=ONE, BACKEND be=0)
$Function BOOL late(BOOL late)
$Restrict backend
$Function INT top(PRIV_TOP, INT n)
$Alias upper toupper
";

const DIRECTORS: &str = "
$Object random()
$Method VOID .add_backend(BACKEND, REAL)
$Method BACKEND .backend()
$Method BLOB .use()
$Restrict backend
";

impl Catalogue for Modules {
    fn module(&self, name: &str) -> Option<ModuleSignatures> {
        let text = match name {
            "std" => STD,
            "directors" => DIRECTORS,
            _ => return None,
        };
        Some(parse_module(name, text).expect("the notation is valid"))
    }

    fn names(&self) -> Vec<&str> {
        vec!["std", "directors"]
    }
}

/// Files by name. Patterns support `*` at the end only.
#[derive(Default)]
pub struct Memory(pub BTreeMap<String, String>);

impl Files for Memory {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        self.0
            .get(path)
            .map(|text| text.clone().into_bytes())
            .ok_or_else(|| "No such file or directory".to_owned())
    }

    fn exists(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, String> {
        let start = pattern.trim_end_matches('*');
        Ok(self.0.keys().filter(|k| k.starts_with(start)).cloned().collect())
    }

    fn socket(&self, path: &str) -> SocketKind {
        match path {
            "/run/s" => SocketKind::Socket,
            "/etc/passwd" => SocketKind::NotASocket,
            _ => SocketKind::NotYet("No such file or directory".to_owned()),
        }
    }

    fn authorities(&self, path: Option<&str>) -> Result<Vec<u8>, String> {
        self.read(path.unwrap_or("/trust.pem"))
    }

    fn identity(&self, certificate: &str, key: Option<&str>) -> Result<IdentityPem, String> {
        let pem = |path: &str| self.read(path);
        Ok(IdentityPem { certificate: pem(certificate)?, key: pem(key.unwrap_or(certificate))? })
    }
}

pub const STORAGES: &[&str] = &["s0", "Transient"];

pub fn with_options<T>(files: &Memory, run: impl FnOnce(Options) -> T) -> T {
    let storages: Vec<String> = STORAGES.iter().map(|s| (*s).to_owned()).collect();
    let labels = vec!["other".to_owned()];
    let mut options = Options::new(&Modules, files, &NumericResolver);
    options.storages = &storages;
    options.labels = &labels;
    run(options)
}

/// Compiles a whole text.
pub fn compile_text(text: &str) -> Result<Compiled, Vec<Diagnostic>> {
    with_options(&Memory::default(), |options| compile("<vcl.inline>", text, &options))
}

/// Prepends version, modules and a backend to the text, on one line.
pub fn with_head(text: &str) -> String {
    format!("vcl 4.1; import std; import directors; backend be none; {text}")
}

pub fn program(text: &str) -> Program {
    match compile_text(&with_head(text)) {
        Ok(compiled) => compiled.program,
        Err(errors) => panic!("{text}\n{}", vcc_text(&errors)),
    }
}

/// Returns the error text of declarations after the usual head.
pub fn error(text: &str) -> String {
    whole_error(&with_head(text))
}

pub fn whole_error(text: &str) -> String {
    match compile_text(text) {
        Ok(_) => panic!("compiled: {text}"),
        Err(errors) => vcc_text(&errors),
    }
}

/// Returns the statements of `sub vcl_recv`, without trace points and the statements of the built-in VCL.
pub fn recv(statements: &str) -> Vec<String> {
    body(&program(&format!("sub vcl_recv {{ {statements} }}")), "vcl_recv")
}

pub fn body(program: &Program, name: &str) -> Vec<String> {
    let sub = program.subs.iter().find(|s| s.name == name).expect("the subroutine exists");
    let own = sub.body.iter().filter(|s| is_own(s));
    own.map(|s| show_stmt(program, s)).collect()
}

fn is_own(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Trace { .. } => false,
        stmt => stmt.at().is_none_or(|at| at.source == 0),
    }
}

pub fn show_stmt(program: &Program, stmt: &Stmt) -> String {
    let show = |e: &Expr| show(program, e);
    let list = |b: &[Stmt]| {
        let shown = b.iter().filter(|s| !matches!(s, Stmt::Trace { .. })).map(|s| show_stmt(program, s));
        shown.collect::<Vec<_>>().join("; ")
    };
    match stmt {
        Stmt::Set { target, op, value, .. } | Stmt::SetBody { target, op, value, .. } => {
            format!("{} {op:?} {}", target.name(), show(value))
        }
        Stmt::SetHeader { http, header, value, .. } => {
            format!("{http:?}.{} = {}", program.headers[*header as usize], show(value))
        }
        Stmt::Unset { target, .. } => format!("unset {}", target.name()),
        Stmt::UnsetHeader { http, header, .. } => {
            format!("unset {http:?}.{}", program.headers[*header as usize])
        }
        Stmt::If { arms, otherwise } => {
            let arms: Vec<String> =
                arms.iter().map(|(c, b)| format!("{} {{{}}}", show(c), list(b))).collect();
            format!("if {} else {{{}}}", arms.join(" elif "), list(otherwise))
        }
        Stmt::CallSub { sub, .. } => format!("call {}", program.subs[*sub as usize].name),
        Stmt::CallDynamic { sub, .. } => format!("call dynamic {}", show(sub)),
        Stmt::Do { call, .. } => show(call),
        Stmt::New { object, args, .. } => {
            let object = &program.modules.objects[*object as usize];
            format!("new {} {}/{}", object.name, object.type_name, args.len())
        }
        Stmt::HashData { value, .. } => format!("hash {}", show(value)),
        Stmt::Ban { value, .. } => format!("ban {}", show(value)),
        Stmt::Synthetic { value, .. } => format!("synthetic {}", show(value)),
        Stmt::Return { how, .. } => format!("return {how:?}"),
        Stmt::Trace { .. } => "trace".to_owned(),
    }
}

/// Formats an expression as `type:form`; obvious types are omitted.
pub fn show(program: &Program, e: &Expr) -> String {
    let one = |e: &Expr| show(program, e);
    let all = |list: &[Expr]| list.iter().map(one).collect::<Vec<_>>().join(" ");
    let ty = e.ty.name();
    match &e.kind {
        ExprKind::Bool(b) => b.to_string(),
        ExprKind::Int(n) => format!("{ty}:{n}"),
        ExprKind::Real(n) => format!("{ty}:{n}"),
        ExprKind::Str(s) => format!("{s:?}"),
        ExprKind::Var(var) => var.name().to_owned(),
        ExprKind::Header(http, header) => format!("{http:?}.{}", program.headers[*header as usize]),
        ExprKind::HeaderRef(http, header) => format!("&{http:?}.{}", program.headers[*header as usize]),
        ExprKind::HttpRef(http) => format!("&{http:?}"),
        ExprKind::Concat(parts) => format!("{ty}[{}]", all(parts)),
        ExprKind::ToString(inner) => format!("str({})", one(inner)),
        ExprKind::Convert(inner) => format!("{ty}({})", one(inner)),
        ExprKind::Defined(inner) => format!("defined({})", one(inner)),
        ExprKind::Not(inner) => format!("!{}", one(inner)),
        ExprKind::Negate(inner) => format!("-{}", one(inner)),
        ExprKind::And(terms) => format!("and({})", all(terms)),
        ExprKind::Or(terms) => format!("or({})", all(terms)),
        ExprKind::Compare(op, a, b) => format!("{op:?}({} {})", one(a), one(b)),
        ExprKind::Arith(op, a, b) => format!("{ty}:{op:?}({} {})", one(a), one(b)),
        ExprKind::Match { subject, regex, negated } => {
            format!("{}match({} {})", if *negated { "!" } else { "" }, one(subject), one(regex))
        }
        ExprKind::AclMatch { ip, acl, negated } => {
            format!("{}acl({} {})", if *negated { "!" } else { "" }, one(ip), one(acl))
        }
        ExprKind::Regex(id) => format!("/{}/", program.regexes[*id as usize]),
        ExprKind::Acl(id) => program.acls[*id as usize].name.clone(),
        ExprKind::Backend(id) => program.origins.backends[*id as usize].name.clone(),
        ExprKind::Sub(id) => format!("sub {}", program.subs[*id as usize].name),
        ExprKind::Regsub { all, subject, regex, replacement } => {
            format!("regsub{}({} {} {})", u8::from(*all), one(subject), one(regex), one(replacement))
        }
        ExprKind::ChangeCase { upper, value } => {
            format!("{}({})", if *upper { "up" } else { "low" }, one(value))
        }
        ExprKind::Call { function, args, object, call_site, .. } => {
            let function = &program.modules.functions[*function as usize];
            let args: Vec<String> = args.iter().map(|a| a.as_ref().map_or("-".to_owned(), &one)).collect();
            let object =
                object.map_or(String::new(), |o| format!("{}.", program.modules.objects[o as usize].name));
            let site = call_site.map_or(String::new(), |s| format!("#{s}"));
            format!("{object}{}{site}({})", function.name, args.join(" "))
        }
        other => format!("{other:?}"),
    }
}
