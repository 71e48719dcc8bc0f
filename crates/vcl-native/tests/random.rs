//! Random programs have the same effects compiled and interpreted. A failure shows the seed; `SEED=n` runs only that
//! one, and `FUZZ_SECONDS=n` runs for n seconds.

mod common;

use std::collections::BTreeMap;

use common::build::*;
use common::host::MemoryHost;
use common::interpreter::Interpreter;
use common::module;
use lacquer_testing::Random;
use lacquer_vcl::program::*;
use lacquer_vcl::types::{Action, HttpId, Method, Type};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::Ctx;

const TEXTS: &[&str] = &[
    "",
    "a",
    "bb",
    "abc",
    "GET",
    "xyzzy",
    "bcbbc",
    "exactly eight+",
    "abcdefghijklmnopqrstuvwxyz",
    "caf\u{e9}",
    "-1",
];
const NUMBERS: &[i64] = &[0, 1, -1, 2, 7, -13, 1000, 999_999_999_999_999, i64::MAX, i64::MIN];
const REALS: &[f64] = &[0.0, 1.0, -0.5, 2.25, 1e11, 1e300, -3.75];
const COMPARISONS: &[CompareOp] =
    &[CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

struct Writer {
    dice: Random,
    /// Subs with at least this index may be called.
    callable: u32,
    subs: u32,
}

impl Writer {
    fn rarely(&mut self) -> bool {
        self.dice.below(12) == 0
    }

    fn text(&mut self, depth: usize) -> Expr {
        let pick = if depth == 0 { self.dice.below(4) } else { self.dice.below(17) };
        match pick {
            13.. => self.text_of_call(pick, depth),
            0 if self.rarely() => e(Type::String, ExprKind::NullStr),
            0 if self.rarely() => e(Type::String, ExprKind::Str(vec![b'\xe9', 0xff, b'a'].into())),
            0 => text(self.dice.one(TEXTS)),
            1 | 2 => header(self.dice.below(8) as u32),
            3 => {
                let text = self.dice.one(&[Var::ReqUrl, Var::ReqMethod, Var::RespReason]);
                var(Type::String, text)
            }
            4 | 5 => {
                let n = 2 + self.dice.below(3);
                concat((0..n).map(|_| self.text(depth - 1)).collect())
            }
            6 => {
                let inner = self.int(depth - 1);
                to_string(inner)
            }
            7 => {
                let ty = self.dice.one(&[Type::Real, Type::Duration, Type::Time]);
                let inner = self.real(ty, depth - 1);
                to_string(inner)
            }
            8 => {
                let inner = self.truth(depth - 1);
                to_string(inner)
            }
            9 => {
                let regex = Box::new(e(Type::Regex, ExprKind::Regex(self.dice.below(4) as u32)));
                let subject = self.text(depth - 1);
                let subject = Box::new(subject);
                let replacement = Box::new(text(self.dice.one(&["", "-", "[\\0]", "\\1\\2", "\\\\x"])));
                let all = self.dice.below(2) == 0;
                e(Type::String, ExprKind::Regsub { all, subject, regex, replacement })
            }
            10 => {
                let value = self.text(depth - 1);
                let value = Box::new(value);
                e(Type::String, ExprKind::ChangeCase { upper: self.dice.below(2) == 0, value })
            }
            11 if self.rarely() => call(Type::String, module::FAIL, vec![]),
            11 => {
                let arg = self.text(depth - 1);
                call(Type::String, module::ECHO, vec![arg])
            }
            _ => {
                let n = self.dice.below(4);
                let parts = (0..n).map(|_| self.text(depth - 1)).collect();
                call(Type::String, module::TAIL, vec![strands(parts)])
            }
        }
    }

    fn text_of_call(&mut self, pick: u64, depth: usize) -> Expr {
        match pick {
            13 => {
                let args = vec![
                    self.text(depth - 1),
                    self.int(depth - 1),
                    self.real(Type::Real, depth - 1),
                    self.truth(depth - 1),
                ];
                let mut args: Vec<Option<Expr>> = args.into_iter().map(Some).collect();
                args.push(if self.dice.below(2) == 0 { None } else { Some(self.text(depth - 1)) });
                e(
                    Type::String,
                    ExprKind::Call { function: module::SHOW, object: None, args, call_site: None, at: HERE },
                )
            }
            14 => {
                let name = ExprKind::HeaderRef(HttpId::Req, self.dice.below(8) as u32);
                call(Type::String, module::HEADER, vec![e(Type::Header, name)])
            }
            15 if self.rarely() => call(Type::String, module::LIE, vec![]),
            15 => call(Type::String, module::NOTHING, vec![]),
            _ => to_string(self.ip()),
        }
    }

    fn ip(&mut self) -> Expr {
        match self.dice.below(3) {
            0 => var(Type::Ip, Var::ClientIp),
            _ => {
                let ip = self.dice.one(&["192.0.2.7", "192.0.2.200", "198.51.100.1", "2001:db8::1"]);
                e(Type::Ip, ExprKind::Ip(ip.parse().expect("it is an address"), 80))
            }
        }
    }

    fn int(&mut self, depth: usize) -> Expr {
        let pick = if depth == 0 { self.dice.below(2) } else { self.dice.below(8) };
        match pick {
            0 => int(self.dice.one(NUMBERS)),
            1 => {
                let which = self.dice.one(&[Var::ReqRestarts, Var::RespStatus]);
                var(Type::Int, which)
            }
            6 => {
                let call_site = Some(self.dice.below(2) as u32);
                let kind = ExprKind::Call {
                    function: module::COUNT,
                    object: None,
                    args: vec![],
                    call_site,
                    at: HERE,
                };
                e(Type::Int, kind)
            }
            7 => {
                let inner = self.bytes(depth - 1);
                e(Type::Int, ExprKind::Convert(Box::new(inner)))
            }
            2 => {
                let inner = self.int(depth - 1);
                e(Type::Int, ExprKind::Negate(Box::new(inner)))
            }
            3 => {
                let inner = self.real(Type::Real, depth - 1);
                e(Type::Int, ExprKind::Convert(Box::new(inner)))
            }
            _ => {
                let op =
                    self.dice.one(&[ArithOp::Add, ArithOp::Sub, ArithOp::Mul, ArithOp::Div, ArithOp::Mod]);
                let (a, b) = (self.int(depth - 1), self.int(depth - 1));
                arith(Type::Int, op, a, b)
            }
        }
    }

    fn bytes(&mut self, depth: usize) -> Expr {
        match self.dice.below(if depth == 0 { 2 } else { 4 }) {
            0 => e(Type::Bytes, ExprKind::Int(self.dice.one(NUMBERS))),
            1 => e(Type::Bytes, ExprKind::StorageVar("s0".to_owned(), Var::StorageFreeSpace)),
            2 => {
                let inner = self.real(Type::Real, depth - 1);
                e(Type::Bytes, ExprKind::Convert(Box::new(inner)))
            }
            _ => {
                let op = self.dice.one(&[ArithOp::Add, ArithOp::Sub]);
                let (a, b) = (self.bytes(depth - 1), self.bytes(depth - 1));
                arith(Type::Bytes, op, a, b)
            }
        }
    }

    fn real(&mut self, ty: Type, depth: usize) -> Expr {
        let pick = if depth == 0 { self.dice.below(2) } else { self.dice.below(6) };
        match pick {
            0 => e(ty, ExprKind::Real(self.dice.one(REALS))),
            1 if ty == Type::Time => var(ty, Var::Now),
            1 if ty == Type::Duration => var(ty, Var::ReqTtl),
            1 | 2 => {
                let inner = self.int(depth.saturating_sub(1));
                e(ty, ExprKind::Convert(Box::new(inner)))
            }
            _ => {
                let op = self.dice.one(&[ArithOp::Add, ArithOp::Sub, ArithOp::Mul, ArithOp::Div]);
                let a = self.real(ty, depth - 1);
                let b = if self.dice.below(3) == 0 { self.int(depth - 1) } else { self.real(ty, depth - 1) };
                arith(ty, op, a, b)
            }
        }
    }

    fn truth(&mut self, depth: usize) -> Expr {
        let pick = if depth == 0 { self.dice.below(2) } else { self.dice.below(14) };
        match pick {
            0 => truth(self.dice.below(2) == 0),
            1 => var(Type::Bool, Var::ReqHashAlwaysMiss),
            2 => {
                let inner = self.truth(depth - 1);
                e(Type::Bool, ExprKind::Not(Box::new(inner)))
            }
            3 | 4 => {
                let n = 1 + self.dice.below(3);
                let all = (0..n).map(|_| self.truth(depth - 1)).collect();
                e(Type::Bool, if pick == 3 { ExprKind::And(all) } else { ExprKind::Or(all) })
            }
            9 => {
                let (ip, acl) = (self.ip(), e(Type::Acl, ExprKind::Acl(0)));
                let negated = self.dice.below(2) == 0;
                e(Type::Bool, ExprKind::AclMatch { ip: Box::new(ip), acl: Box::new(acl), negated })
            }
            10 => {
                let (a, b) = (self.ip(), self.ip());
                compare(self.dice.one(&[CompareOp::Eq, CompareOp::Ne]), a, b)
            }
            11 => {
                let (a, b) = (self.truth(depth - 1), self.truth(depth - 1));
                compare(self.dice.one(&[CompareOp::Eq, CompareOp::Ne]), a, b)
            }
            12 => {
                let ty = self.dice.one(&[Type::Duration, Type::Time]);
                let (a, b) = (self.real(ty, depth - 1), self.real(ty, depth - 1));
                compare(self.dice.one(COMPARISONS), a, b)
            }
            5 => {
                let inner = self.text(depth - 1);
                e(Type::Bool, ExprKind::Defined(Box::new(inner)))
            }
            6 => {
                let subject = self.text(depth - 1);
                matches(subject, self.dice.below(4) as u32, self.dice.below(2) == 0)
            }
            7 => {
                let (a, b) = (self.int(depth - 1), self.int(depth - 1));
                compare(self.dice.one(COMPARISONS), a, b)
            }
            8 => {
                let (a, b) = (self.real(Type::Real, depth - 1), self.real(Type::Real, depth - 1));
                compare(self.dice.one(COMPARISONS), a, b)
            }
            _ => {
                let (a, b) = (self.text(depth - 1), self.text(depth - 1));
                compare(self.dice.one(COMPARISONS), a, b)
            }
        }
    }

    fn body(&mut self, depth: usize) -> Vec<Stmt> {
        let n = 1 + self.dice.below(4);
        (0..n).map(|_| self.stmt(depth)).collect()
    }

    /// Writes a return with arguments.
    fn ending(&mut self) -> Return {
        match self.dice.below(3) {
            0 => {
                let status = if self.dice.below(2) == 0 {
                    int(self.dice.one(&[200, 99, 70_000]))
                } else {
                    self.int(2)
                };
                let reason = (self.dice.below(2) == 0).then(|| self.text(2));
                Return::Status { action: Action::Synth, status, reason }
            }
            1 => Return::PassFor(self.real(Type::Duration, 2)),
            _ => Return::Fail(Some(self.text(2))),
        }
    }

    /// Writes a statement that sets no variable.
    fn effect(&mut self) -> Stmt {
        let at = HERE;
        match self.dice.below(7) {
            0 => Stmt::Do { at, call: self.text(2) },
            1 => Stmt::Unset { at, target: Var::ReqUrl },
            2 => {
                let n = 1 + self.dice.below(3);
                let value = strands((0..n).map(|_| self.text(2)).collect());
                let op = self.dice.one(&[SetOp::Assign, SetOp::Add]);
                Stmt::SetBody { at, target: Var::RespBody, op, value }
            }
            3 => {
                let value = e(Type::Blob, ExprKind::Blob(b"blob\xff".to_vec()));
                Stmt::SetBody { at, target: Var::RespBody, op: SetOp::Assign, value }
            }
            4 => {
                let n = 1 + self.dice.below(3);
                Stmt::Synthetic { at, value: strands((0..n).map(|_| self.text(2)).collect()) }
            }
            5 => Stmt::Ban { at, value: self.text(2) },
            _ => Stmt::Trace { at, number: self.dice.below(100) as u32 },
        }
    }

    fn stmt(&mut self, depth: usize) -> Stmt {
        if self.dice.below(4) == 0 {
            return self.effect();
        }
        match self.dice.below(if depth == 0 { 9 } else { 12 }) {
            0..3 => {
                let value = self.text(3);
                set_header(self.dice.below(8) as u32, value)
            }
            3 => Stmt::UnsetHeader { at: HERE, http: HttpId::Req, header: self.dice.below(8) as u32 },
            4 => {
                let value = self.text(2);
                set(
                    self.dice.one(&[Var::ReqUrl, Var::RespReason]),
                    self.dice.one(&[SetOp::Assign, SetOp::Add]),
                    value,
                )
            }
            5 => {
                let value = self.int(2);
                let ops = [SetOp::Assign, SetOp::Add, SetOp::Sub, SetOp::Mul, SetOp::Div];
                set(self.dice.one(&[Var::RespStatus, Var::ReqTtl]), self.dice.one(&ops), value)
            }
            6 => {
                let value = self.truth(3);
                set(self.dice.one(&[Var::ReqHashAlwaysMiss, Var::ReqTrace]), SetOp::Assign, value)
            }
            7 => {
                let n = self.dice.below(3);
                let parts = (0..n).map(|_| self.text(2)).collect();
                Stmt::HashData { at: HERE, value: strands(parts) }
            }
            8 if self.callable < self.subs && self.dice.below(2) == 0 => {
                let sub = self.callable + self.dice.below(u64::from(self.subs - self.callable)) as u32;
                if self.dice.below(3) == 0 {
                    return Stmt::CallDynamic { at: HERE, sub: e(Type::Sub, ExprKind::Sub(sub)) };
                }
                Stmt::CallSub { at: HERE, sub }
            }
            8 if self.rarely() => Stmt::Return { at: HERE, how: self.ending() },
            8 if self.rarely() => act(self.dice.one(&[Action::Hash, Action::Pass, Action::Fail])),
            8 => Stmt::If {
                arms: vec![(self.truth(1), vec![Stmt::Return { at: HERE, how: Return::FromSub }])],
                otherwise: vec![],
            },
            _ => {
                let n = 1 + self.dice.below(3);
                let arms = (0..n).map(|_| (self.truth(3), self.body(depth - 1))).collect();
                let otherwise = if self.dice.below(2) == 0 { self.body(depth - 1) } else { Vec::new() };
                Stmt::If { arms, otherwise }
            }
        }
    }
}

fn random_program(seed: u64) -> Program {
    let mut writer = Writer { dice: Random(seed), callable: 0, subs: 0 };
    writer.subs = 1 + writer.dice.below(5) as u32;
    let mut subs = Vec::new();
    for i in 0..writer.subs {
        writer.callable = i + 1;
        let mut body = writer.body(3);
        if i == 0 && writer.dice.below(4) > 0 {
            body.push(act(Action::Hash));
        }
        subs.push(sub(&format!("sub{i}"), body));
    }
    let mut program = program(subs);
    "vcl_recv".clone_into(&mut program.subs[0].name);
    program
}

fn random_host(seed: u64) -> MemoryHost {
    let mut dice = Random(seed ^ 0x5555);
    let mut host = MemoryHost::new(Method::Recv).with_text(Var::ReqMethod, dice.one(&["GET", "POST"]));
    for i in 0..4 {
        host = host.with_header(HttpId::Req, &format!("H{i}"), dice.one(TEXTS));
    }
    host.ints.insert(Var::ReqRestarts as u16, dice.one(NUMBERS));
    host.reals.insert(Var::ReqTtl as u16, dice.one(REALS));
    host
}

fn agree(seed: u64) {
    let program = random_program(seed);
    let loaded = load(program.clone());
    let (mut compiled, mut expected) = (random_host(seed), random_host(seed));
    let action = loaded.run(Method::Recv, &mut Ctx::new(&mut compiled, loaded.instance()));
    let mut interpreter = Interpreter {
        program: &program,
        instance: loaded.instance(),
        host: &mut expected,
        trace: false,
        counts: BTreeMap::new(),
    };
    let wanted = interpreter.run(Method::Recv);
    assert_eq!(compiled.journal, expected.journal, "SEED={seed}");
    assert_eq!(action, wanted, "SEED={seed}");
}

#[test]
fn compiled_and_interpreted_programs_agree() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|s| s.parse().ok()) {
        return agree(seed);
    }
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let Some(seconds) = number("FUZZ_SECONDS") else {
        return (0..150).for_each(agree);
    };
    // Each run uses other programs.
    let first = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()) << 24;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let mut done = 0;
    while std::time::Instant::now() < end {
        agree(first + done);
        done += 1;
    }
    eprintln!("{done} programs agree");
}
