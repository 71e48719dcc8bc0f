//! A tree-walking interpreter of checked programs: a simple model of the behavior of compiled code.
//! It supports what the random programs use and panics for the rest.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use lacquer_shm::Tag;
use lacquer_vcl::program::*;
use lacquer_vcl::types::{Action, Method, Type};
use lacquer_vcl::variables_table::{ENTRIES, Var};
use lacquer_vcl_runtime::{Host, Instance, convert};

use super::host::MemoryHost;
use super::module;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(Option<Vec<u8>>),
    Ip(Option<SocketAddr>),
}

/// How statements can end early.
enum End {
    /// `return;`
    Sub,
    Run(Action),
}

/// The run has failed; the host has the reason.
pub struct Failed;

type Done<T> = Result<T, Failed>;

pub struct Interpreter<'i> {
    pub program: &'i Program,
    /// Provides regexes and ACLs.
    pub instance: &'i Instance,
    pub host: &'i mut MemoryHost,
    /// Whether `req.trace` is set.
    pub trace: bool,
    /// Number of calls at each call site with its own state.
    pub counts: BTreeMap<Option<u32>, i64>,
}

impl Interpreter<'_> {
    pub fn run(&mut self, method: Method) -> Action {
        match self.sub(self.program.methods[method as usize]) {
            Ok(Some(action)) => action,
            Ok(None) => {
                self.host.fail(&format!("{} ended without an action", method.sub_name()));
                Action::Fail
            }
            Err(Failed) => Action::Fail,
        }
    }

    fn fail<T>(&mut self, text: impl AsRef<str>) -> Done<T> {
        self.host.fail(text.as_ref());
        Err(Failed)
    }

    fn host<T>(&mut self, done: Result<T, String>) -> Done<T> {
        done.or_else(|text| self.fail(text))
    }

    fn sub(&mut self, index: u32) -> Done<Option<Action>> {
        Ok(match self.stmts(&self.program.subs[index as usize].body)? {
            Some(End::Run(action)) => Some(action),
            Some(End::Sub) | None => None,
        })
    }

    /// Runs statements. `None`: control reached their end.
    fn stmts(&mut self, body: &[Stmt]) -> Done<Option<End>> {
        for stmt in body {
            if let Some(ended) = self.stmt(stmt)? {
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }

    fn stmt(&mut self, stmt: &Stmt) -> Done<Option<End>> {
        match stmt {
            Stmt::Set { target, op, value, .. } => self.set(*target, *op, value)?,
            Stmt::SetHeader { http, header, value, .. } => {
                let name = self.instance.headers[*header as usize].clone();
                let Ok(value) = self.text(value) else {
                    if matches!(value.kind, ExprKind::Call { .. }) {
                        // The host's result has no effect: the run has failed.
                        let _ = self.host.set_header(*http, &name, None);
                    }
                    return Err(Failed);
                };
                let done = self.host.set_header(*http, &name, value.as_deref());
                self.host(done)?;
            }
            Stmt::UnsetHeader { http, header, .. } => {
                let name = self.instance.headers[*header as usize].clone();
                let done = self.host.unset_header(*http, &name);
                self.host(done)?;
            }
            Stmt::If { arms, otherwise } => {
                for (condition, body) in arms {
                    if self.truth(condition)? {
                        return self.stmts(body);
                    }
                }
                return self.stmts(otherwise);
            }
            Stmt::CallSub { sub, .. }
            | Stmt::CallDynamic { sub: Expr { kind: ExprKind::Sub(sub), .. }, .. } => {
                if let Some(action) = self.sub(*sub)? {
                    return Ok(Some(End::Run(action)));
                }
            }
            Stmt::HashData { value, .. } => {
                let hashed = parts(value).iter().map(|p| self.text(p)).collect::<Done<Vec<_>>>()?;
                for part in hashed {
                    let done = self.host.hash_data(part.as_deref());
                    self.host(done)?;
                }
                let done = self.host.hash_data(None);
                self.host(done)?;
            }
            Stmt::Return { how: Return::Plain(Action::Fail), .. } => return self.fail("Failed from VCL"),
            Stmt::Return { how: Return::Plain(action), .. } => return Ok(Some(End::Run(*action))),
            Stmt::Return { how: Return::FromSub, .. } => return Ok(Some(End::Sub)),
            Stmt::Return { how, .. } => return self.finish(how).map(Some),
            other => self.effect(other)?,
        }
        Ok(None)
    }

    /// Runs returns with arguments.
    fn finish(&mut self, how: &Return) -> Done<End> {
        match how {
            Return::Status { action, status, reason } => {
                let Value::Int(status) = self.value(status)? else { panic!("the status must be an INT") };
                let reason = reason.as_ref().map(|r| self.text(r)).transpose()?.flatten();
                if status < 0 {
                    return self.fail(format!("return(synth()) status code ({status}) is negative"));
                }
                if status > 65535 {
                    return self.fail(format!("return(synth()) status code ({status}) > 65535"));
                }
                if status % 1000 < 100 {
                    return self.fail(format!("illegal return(synth()) status code ({status}) (..0##)"));
                }
                let done = self.host.return_status(status, reason.as_deref());
                self.host(done)?;
                Ok(End::Run(*action))
            }
            Return::PassFor(seconds) => {
                let seconds = real(self.value(seconds)?);
                let done = self.host.return_pass_for(seconds);
                self.host(done)?;
                Ok(End::Run(Action::Pass))
            }
            Return::Fail(Some(text)) => {
                let text = self.text(text)?.unwrap_or_else(|| b"(null)".to_vec());
                self.fail(String::from_utf8_lossy(&text))
            }
            other => panic!("not supported by this interpreter: {other:?}"),
        }
    }

    /// Runs statements that set no variable and have no branches.
    fn effect(&mut self, stmt: &Stmt) -> Done<()> {
        match stmt {
            Stmt::Do { call, .. } => self.value(call).map(drop),
            Stmt::Unset { target, .. } => {
                let done = self.host.unset(*target);
                self.host(done)
            }
            Stmt::SetBody { target, op, value, .. } => {
                let content = match &value.kind {
                    ExprKind::Blob(bytes) => bytes.clone(),
                    _ => self.body(value, b"")?,
                };
                let done = self.host.set_body(*target, *op == SetOp::Add, &content);
                self.host(done)
            }
            Stmt::Synthetic { value, .. } => {
                let content = self.body(value, b"(null)")?;
                let done = self.host.set_body(Var::RespBody, true, &content);
                self.host(done)
            }
            Stmt::Ban { value, .. } => {
                let done = match self.text(value)? {
                    Some(text) => self.host.ban(&text),
                    None => Err("Null argument".to_owned()),
                };
                if let Err(text) = done {
                    self.host.log(Tag::VCL_Error as u8, format!("ban(): {text}").as_bytes());
                }
                Ok(())
            }
            Stmt::Trace { at, number } => {
                if self.trace {
                    let At { source, line, column } = at;
                    self.host.trace(&format!("test {number} {source}.{line}.{column}"));
                }
                Ok(())
            }
            other => panic!("not supported by this interpreter: {other:?}"),
        }
    }

    /// Returns the content for a body. `undefined` replaces undefined parts.
    fn body(&mut self, value: &Expr, undefined: &[u8]) -> Done<Vec<u8>> {
        let mut whole = Vec::new();
        for part in parts(value) {
            whole.extend(self.text(part)?.unwrap_or_else(|| undefined.to_vec()));
        }
        Ok(whole)
    }

    fn set(&mut self, target: Var, op: SetOp, value: &Expr) -> Done<()> {
        let ty = ENTRIES.iter().find(|e| e.var == target).expect("a variable").ty;
        let old = Expr { ty, kind: ExprKind::Var(target) };
        let op = match op {
            SetOp::Assign => None,
            SetOp::Add => Some(ArithOp::Add),
            SetOp::Sub => Some(ArithOp::Sub),
            SetOp::Mul => Some(ArithOp::Mul),
            SetOp::Div => Some(ArithOp::Div),
        };
        let new = match op {
            None => self.value(value)?,
            Some(_) if ty == Type::String => {
                let mut joined = self.text(&old)?.unwrap_or_default();
                joined.extend(self.text(value)?.unwrap_or_default());
                Value::Text(Some(joined))
            }
            Some(op) => {
                let (old, new) = (self.value(&old)?, self.value(value)?);
                self.arith(op, old, new, ty)?
            }
        };
        let done = match as_type(new, ty) {
            Value::Bool(v) => {
                if target == Var::ReqTrace {
                    self.trace = v;
                }
                self.host.set_bool(target, v)
            }
            Value::Int(v) => self.host.set_int(target, v),
            Value::Real(v) => self.host.set_real(target, v),
            Value::Text(v) => self.host.set_str(target, v.as_deref()),
            Value::Ip(_) => panic!("an IP cannot be set"),
        };
        self.host(done)
    }

    fn text(&mut self, e: &Expr) -> Done<Option<Vec<u8>>> {
        match self.value(e)? {
            Value::Text(text) => Ok(text),
            other => panic!("{other:?} is not a text"),
        }
    }

    fn truth(&mut self, e: &Expr) -> Done<bool> {
        match self.value(e)? {
            Value::Bool(truth) => Ok(truth),
            other => panic!("{other:?} is not a boolean"),
        }
    }

    fn value(&mut self, e: &Expr) -> Done<Value> {
        Ok(match &e.kind {
            ExprKind::Bool(v) => Value::Bool(*v),
            ExprKind::Int(v) => Value::Int(*v),
            ExprKind::Real(v) => Value::Real(*v),
            ExprKind::Str(text) => Value::Text(Some(text.to_vec())),
            ExprKind::NullStr => Value::Text(None),
            ExprKind::Var(var) => self.var(*var, e.ty),
            ExprKind::Header(http, name) => {
                let name = self.instance.headers[*name as usize].clone();
                Value::Text(self.host.header(*http, &name).map(<[u8]>::to_vec))
            }
            ExprKind::Concat(parts) => {
                let mut joined = Vec::new();
                for part in parts {
                    joined.extend(self.text(part)?.unwrap_or_default());
                }
                Value::Text(Some(joined))
            }
            ExprKind::ToString(inner) => self.as_text(inner)?,
            ExprKind::Convert(inner) => as_type(self.value(inner)?, e.ty),
            ExprKind::Negate(inner) => match self.value(inner)? {
                Value::Int(v) => Value::Int(v.wrapping_neg()),
                Value::Real(v) => Value::Real(-v),
                other => panic!("{other:?} cannot be negated"),
            },
            ExprKind::Not(inner) => Value::Bool(!self.truth(inner)?),
            ExprKind::And(all) => {
                for each in all {
                    if !self.truth(each)? {
                        return Ok(Value::Bool(false));
                    }
                }
                Value::Bool(true)
            }
            ExprKind::Or(any) => {
                for each in any {
                    if self.truth(each)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Value::Bool(false)
            }
            ExprKind::Defined(inner) => {
                let mut defined = false;
                for part in parts(inner) {
                    defined |= self.text(part)?.is_some();
                }
                Value::Bool(defined)
            }
            ExprKind::Compare(op, a, b) => Value::Bool(self.compare(*op, a, b)?),
            ExprKind::Arith(op, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                self.arith(*op, a, b, e.ty)?
            }
            ExprKind::Ip(ip, port) => Value::Ip(Some(SocketAddr::new(*ip, *port))),
            ExprKind::StorageVar(name, var) => Value::Int(self.host.storage_var(name, *var)),
            ExprKind::SubCallable(_) => Value::Bool(true),
            _ => return self.special(e),
        })
    }

    /// Evaluates regexes, changes of case and calls.
    fn special(&mut self, e: &Expr) -> Done<Value> {
        Ok(match &e.kind {
            ExprKind::Match { subject, regex, negated } => {
                let subject = self.text(subject)?.unwrap_or_default();
                let ExprKind::Regex(index) = regex.kind else { panic!("the regex must be constant") };
                let found = self.instance.regexes[index as usize].is_match(&subject, self.host.limits);
                match found {
                    Ok(found) => Value::Bool(found != *negated),
                    Err(e) => return self.fail(format!("Regexp matching failed: {e}")),
                }
            }
            ExprKind::Regsub { all, subject, regex, replacement } => {
                let subject = self.text(subject)?.unwrap_or_default();
                let ExprKind::Regex(index) = regex.kind else { panic!("the regex must be constant") };
                let with = self.text(replacement)?.unwrap_or_default();
                let mut out = Vec::new();
                let regex = &self.instance.regexes[index as usize];
                match regex.substitute(&subject, &with, *all, self.host.limits, &mut out) {
                    Ok(true) => Value::Text(Some(out)),
                    Ok(false) => Value::Text(Some(subject)),
                    Err(e) => return self.fail(format!("regsub: Regexp matching returned {}", e.0)),
                }
            }
            ExprKind::ChangeCase { upper, value } => {
                let text = self.text(value)?.unwrap_or_default();
                let changed = if *upper { text.to_ascii_uppercase() } else { text.to_ascii_lowercase() };
                Value::Text((!changed.is_empty()).then_some(changed))
            }
            ExprKind::AclMatch { ip, acl, negated } => {
                let Value::Ip(ip) = self.value(ip)? else { panic!("an ACL needs an IP") };
                let ExprKind::Acl(index) = acl.kind else { panic!("the ACL must be constant") };
                let Some(ip) = ip else { return self.fail("Cannot match a null IP address") };
                let verdict = self.instance.acls[index as usize].check(&ip);
                if let Some(text) = verdict.log {
                    self.host.log(Tag::VCL_acl as u8, text.as_bytes());
                }
                Value::Bool(verdict.matches != *negated)
            }
            ExprKind::Call { function, args, call_site, .. } => self.call(*function, args, *call_site)?,
            other => panic!("not supported by this interpreter: {other:?}"),
        })
    }

    /// Calls a function of the tests' module.
    fn call(&mut self, function: u32, args: &[Option<Expr>], site: Option<u32>) -> Done<Value> {
        let arg = |i: usize| args[i].as_ref().expect("the argument is always given");
        Ok(match function {
            module::ECHO => Value::Text(self.text(arg(0))?),
            module::NOTHING => Value::Text(None),
            module::HEADER => {
                let ExprKind::HeaderRef(http, name) = arg(0).kind else {
                    panic!("the header must be constant")
                };
                self.value(&Expr { ty: Type::String, kind: ExprKind::Header(http, name) })?
            }
            module::COUNT => {
                let count = self.counts.entry(site).or_default();
                *count += 1;
                Value::Int(*count - 1)
            }
            module::SHOW => {
                let mut shown = Vec::new();
                for arg in args {
                    shown.push(match arg.as_ref().map(|a| self.value(a)).transpose()? {
                        None => format!("{:?}", lacquer_vcl_runtime::Value::Absent),
                        Some(Value::Text(Some(s))) => format!("{:?}", String::from_utf8_lossy(&s)),
                        Some(Value::Text(None)) => "null".to_owned(),
                        Some(Value::Int(n)) => format!("{:?}", lacquer_vcl_runtime::Value::Int(n)),
                        Some(Value::Real(n)) => format!("{:?}", lacquer_vcl_runtime::Value::Real(n)),
                        Some(Value::Bool(b)) => format!("{:?}", lacquer_vcl_runtime::Value::Bool(b)),
                        Some(Value::Ip(_)) => panic!("no IP is passed"),
                    });
                }
                Value::Text(Some(shown.join(" ").into_bytes()))
            }
            module::TAIL => {
                let (mut count, mut last) = (0, None);
                for part in parts(arg(0)) {
                    last = self.text(part)?;
                    count += 1;
                }
                let last = last.unwrap_or_else(|| b"null".to_vec());
                Value::Text(Some(format!("{count}:{}", String::from_utf8_lossy(&last)).into_bytes()))
            }
            module::FAIL => return self.fail("the module failed"),
            module::LIE => {
                let text = "A module function returned another type than it declares";
                return self.fail(text);
            }
            other => panic!("not supported by this interpreter: function {other}"),
        })
    }

    fn var(&mut self, var: Var, ty: Type) -> Value {
        match ty {
            Type::Bool => Value::Bool(self.host.get_bool(var)),
            Type::Int | Type::Bytes => Value::Int(self.host.get_int(var)),
            Type::Real | Type::Duration | Type::Time => {
                Value::Real(if var == Var::Now { self.host.now() } else { self.host.get_real(var) })
            }
            Type::String => Value::Text(self.host.get_str(var).map(<[u8]>::to_vec)),
            Type::Ip => Value::Ip(self.host.get_ip(var).copied()),
            other => panic!("no variables of type {other:?}"),
        }
    }

    fn as_text(&mut self, inner: &Expr) -> Done<Value> {
        let text = match self.value(inner)? {
            Value::Text(text) => return Ok(Value::Text(text)),
            Value::Bool(v) => return Ok(Value::Text(Some(v.to_string().into_bytes()))),
            Value::Int(v) => convert::int(v),
            Value::Real(v) if inner.ty == Type::Time => convert::time(v),
            Value::Real(v) => convert::real(v),
            Value::Ip(Some(v)) => Ok(convert::ip(&v)),
            Value::Ip(None) => Err("VRT_IP_string: Illegal IP".to_owned()),
        };
        let text = self.host(text)?;
        Ok(Value::Text(Some(text.bytes().to_vec())))
    }

    fn compare(&mut self, op: CompareOp, a: &Expr, b: &Expr) -> Done<bool> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let order = if a.ty == Type::String {
            let single = parts(a).len() == 1 && parts(b).len() == 1;
            match (self.text(a)?, self.text(b)?) {
                (Some(a), Some(b)) => Some(a.cmp(&b)),
                _ if single => Some(Greater),
                (a, b) => Some(a.unwrap_or_default().cmp(&b.unwrap_or_default())),
            }
        } else {
            match (self.value(a)?, self.value(b)?) {
                (Value::Int(a), Value::Int(b)) => Some(a.cmp(&b)),
                (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(&b)),
                (Value::Ip(a), Value::Ip(b)) => match (a, b) {
                    (Some(a), Some(b)) => Some(if a.ip() == b.ip() { Equal } else { Greater }),
                    _ => return self.fail("VRT_ipcmp: Illegal IP"),
                },
                (a, b) => real(a).partial_cmp(&real(b)),
            }
        };
        Ok(match op {
            CompareOp::Eq => order == Some(Equal),
            CompareOp::Ne => order != Some(Equal),
            CompareOp::Lt => order == Some(Less),
            CompareOp::Le => matches!(order, Some(Less | Equal)),
            CompareOp::Gt => order == Some(Greater),
            CompareOp::Ge => matches!(order, Some(Greater | Equal)),
        })
    }

    fn arith(&mut self, op: ArithOp, a: Value, b: Value, ty: Type) -> Done<Value> {
        let result = if let (Value::Int(a), Value::Int(b)) = (&a, &b) {
            let (a, b) = (*a, *b);
            if b == 0 && matches!(op, ArithOp::Div | ArithOp::Mod) {
                return self.fail("Division by zero");
            }
            Value::Int(match op {
                ArithOp::Add => a.wrapping_add(b),
                ArithOp::Sub => a.wrapping_sub(b),
                ArithOp::Mul => a.wrapping_mul(b),
                ArithOp::Div => a.wrapping_div(b),
                ArithOp::Mod => a.wrapping_rem(b),
            })
        } else {
            let (a, b) = (real(a), real(b));
            Value::Real(match op {
                ArithOp::Add => a + b,
                ArithOp::Sub => a - b,
                ArithOp::Mul => a * b,
                ArithOp::Div => a / b,
                ArithOp::Mod => panic!("% requires INT"),
            })
        };
        Ok(as_type(result, ty))
    }
}

fn parts(e: &Expr) -> Vec<&Expr> {
    match &e.kind {
        ExprKind::Concat(parts) => parts.iter().collect(),
        _ => vec![e],
    }
}

fn real(value: Value) -> f64 {
    match value {
        Value::Int(v) => v as f64,
        Value::Real(v) => v,
        other => panic!("{other:?} is not a number"),
    }
}

fn as_type(value: Value, ty: Type) -> Value {
    match (value, ty) {
        (Value::Int(v), Type::Real | Type::Duration | Type::Time) => Value::Real(v as f64),
        (Value::Real(v), Type::Int | Type::Bytes) => Value::Int(v as i64),
        (value, _) => value,
    }
}
