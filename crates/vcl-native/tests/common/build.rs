//! Short functions that build checked programs.

use lacquer_vcl::program::*;
use lacquer_vcl::types::{Action, HttpId, Method, Type};
use lacquer_vcl::variables_table::{ALL, Var};
use lacquer_vcl_native::LoadedVcl;
use lacquer_vcl_runtime::{Ctx, Instance};

use super::host::MemoryHost;
use super::module::MODULES;

pub const HERE: At = At { source: 0, line: 1, column: 1 };

pub fn e(ty: Type, kind: ExprKind) -> Expr {
    Expr { ty, kind }
}

pub fn text(text: &str) -> Expr {
    e(Type::String, ExprKind::Str(text.into()))
}

pub fn int(n: i64) -> Expr {
    e(Type::Int, ExprKind::Int(n))
}

pub fn real(n: f64) -> Expr {
    e(Type::Real, ExprKind::Real(n))
}

pub fn truth(v: bool) -> Expr {
    e(Type::Bool, ExprKind::Bool(v))
}

pub fn header(name: u32) -> Expr {
    e(Type::String, ExprKind::Header(HttpId::Req, name))
}

pub fn var(ty: Type, var: Var) -> Expr {
    e(ty, ExprKind::Var(var))
}

pub fn concat(parts: Vec<Expr>) -> Expr {
    e(Type::String, ExprKind::Concat(parts))
}

pub fn strands(parts: Vec<Expr>) -> Expr {
    e(Type::Strands, ExprKind::Concat(parts))
}

pub fn to_string(inner: Expr) -> Expr {
    e(Type::String, ExprKind::ToString(Box::new(inner)))
}

pub fn compare(op: CompareOp, a: Expr, b: Expr) -> Expr {
    e(Type::Bool, ExprKind::Compare(op, Box::new(a), Box::new(b)))
}

pub fn arith(ty: Type, op: ArithOp, a: Expr, b: Expr) -> Expr {
    e(ty, ExprKind::Arith(op, Box::new(a), Box::new(b)))
}

pub fn matches(subject: Expr, regex: u32, negated: bool) -> Expr {
    let regex = e(Type::Regex, ExprKind::Regex(regex));
    e(Type::Bool, ExprKind::Match { subject: Box::new(subject), regex: Box::new(regex), negated })
}

pub fn call(ty: Type, function: u32, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(Some).collect();
    e(ty, ExprKind::Call { function, object: None, args, call_site: None, at: HERE })
}

pub fn set_header(header: u32, value: Expr) -> Stmt {
    Stmt::SetHeader { at: HERE, http: HttpId::Req, header, value }
}

pub fn set(target: Var, op: SetOp, value: Expr) -> Stmt {
    Stmt::Set { at: HERE, target, op, value }
}

pub fn when(condition: Expr, then: Vec<Stmt>) -> Stmt {
    Stmt::If { arms: vec![(condition, then)], otherwise: Vec::new() }
}

pub fn act(action: Action) -> Stmt {
    Stmt::Return { at: HERE, how: Return::Plain(action) }
}

pub fn sub(name: &str, body: Vec<Stmt>) -> Sub {
    Sub { name: name.to_owned(), at: HERE, body, reachable_from: ALL, allowed: ALL }
}

/// Builds a program whose first sub is every method. It has the headers `H0` to `H7`, a few regexes, an ACL and the
/// functions of the tests' module.
pub fn program(subs: Vec<Sub>) -> Program {
    let network = |negated, text: &str, bits| AclEntry {
        negated,
        address: text.parse().expect("a valid address"),
        bits,
        text: format!("\"{text}\"/{bits}"),
    };
    Program {
        syntax: 41,
        headers: (0..8).map(|i| format!("H{i}")).collect(),
        regexes: ["^a", "(b+)(c)?", "x.*y$", "(a+)+$"].map(lacquer_vcl::Text::from).to_vec(),
        acls: vec![Acl {
            name: "local".to_owned(),
            entries: vec![network(false, "192.0.2.0", 24), network(true, "192.0.2.128", 25)],
            log: true,
            table: false,
            fold: false,
            pedantic: true,
        }],
        modules: Modules {
            imports: vec![Import { module: "trial".to_owned(), alias: "trial".to_owned() }],
            functions: super::module::FUNCTIONS
                .iter()
                .map(|f| {
                    let (object, name) = f.split_once('.').unwrap_or(("", f));
                    Function { import: 0, object: object.to_owned(), name: name.to_owned() }
                })
                .collect(),
            objects: Vec::new(),
            call_sites: 2,
        },
        methods: vec![0; Method::COUNT],
        subs,
        ..Program::default()
    }
}

pub fn load(program: Program) -> LoadedVcl {
    let instance = Instance::new("test", program, MODULES, true).expect("the program is valid");
    lacquer_vcl_native::compile(instance).expect("the program compiles")
}

/// Loads and runs `subs` as vcl_recv.
pub fn run_on(mut host: MemoryHost, subs: Vec<Sub>) -> (Action, MemoryHost) {
    let loaded = load(program(subs));
    let action = {
        let mut ctx = Ctx::new(&mut host, loaded.instance());
        loaded.run(Method::Recv, &mut ctx)
    };
    (action, host)
}

pub fn run(body: Vec<Stmt>) -> (Action, Vec<String>) {
    let (action, host) = run_on(MemoryHost::new(Method::Recv), vec![sub("vcl_recv", body)]);
    (action, host.journal)
}
