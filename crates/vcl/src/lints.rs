//! Warnings about programs that compile but cause harm. `lacquer check` shows them; `docs/vcl-lints.md` explains them.
//!
//! There are few lints, and each warns only if the text itself proves the problem.

use crate::diagnostics::{Diagnostic, Piece, Place, Severity, display_column};
use crate::program::{At, Expr, ExprKind, Program, Return, SetOp, Source, Stmt};
use crate::types::{Action, HttpId, Method};
use crate::variables_table::Var;

/// Returns all warnings, in the order of the text.
pub fn lint(program: &Program) -> Vec<Diagnostic> {
    let mut linter = Linter { program, found: Vec::new() };
    for sub in &program.subs {
        linter.unreachable(&sub.body);
        linter.zero_ttl(&sub.body);
        each_stmt(&sub.body, &mut |stmt| {
            linter.ban(stmt);
            linter.deprecated(stmt);
        });
    }
    linter.unchecked_host();
    linter.raw_hash();
    linter.cached_cookies();
    linter.found.sort_by_key(|(at, _)| (at.source, at.line, at.column));
    linter.found.into_iter().map(|(_, diagnostic)| diagnostic).collect()
}

/// Headers that have few values, or that the built-in VCL hashes itself.
const PLAIN: [&str; 2] = ["host", "x-forwarded-proto"];

const DEPRECATED: [(&str, &str); 4] = [
    ("real2integer", "std.integer(real=...)"),
    ("real2time", "std.time(real=...)"),
    ("time2integer", "std.integer(time=...)"),
    ("time2real", "std.real(time=...)"),
];

struct Linter<'a> {
    program: &'a Program,
    found: Vec<(At, Diagnostic)>,
}

impl<'a> Linter<'a> {
    fn warn(&mut self, at: At, message: &str, hint: &str) {
        let Some(source) = self.program.sources.get(at.source as usize).filter(|s| !s.builtin) else {
            return;
        };
        let text = source.text.split(|b| *b == b'\n').nth(at.line as usize - 1).unwrap_or_default();
        let start = (0..text.len()).find(|i| display_column(text, *i) >= at.column).unwrap_or(0);
        let end = text[start..].iter().position(|b| *b == b';').map_or(text.len(), |end| start + end + 1);
        let place = Place {
            file: source.name.clone(),
            line: at.line,
            start,
            end,
            text: text.into(),
            last: None,
            range: false,
            included_from: self.includes_of(source),
        };
        let mut diagnostic = Diagnostic::new(Severity::Warning);
        diagnostic.pieces = vec![Piece::Text(format!("{message}\n")), Piece::Place(place)];
        diagnostic.hint = Some(hint.to_owned());
        self.found.push((at, diagnostic));
    }

    fn includes_of(&self, mut source: &'a Source) -> Vec<(String, u32)> {
        let mut chain = Vec::new();
        while let Some(parent) = source.parent.and_then(|p| self.program.sources.get(p as usize)) {
            chain.push((parent.name.clone(), source.included_at));
            source = parent;
        }
        chain
    }

    fn is_users(&self, at: At) -> bool {
        self.program.sources.get(at.source as usize).is_some_and(|s| !s.builtin)
    }

    /// Warns about backends whose certificate may be that of any other server, which is Varnish's default.
    fn unchecked_host(&mut self) {
        for tls in self.program.origins.backends.iter().filter_map(|backend| backend.tls.as_ref()) {
            if tls.verifies_peer && !tls.verifies_host {
                let message = "The certificate may be that of any other server [unchecked-host]";
                let name = &tls.server_name;
                self.warn(
                    tls.at,
                    message,
                    &format!("add '.ssl_verify_host = 1;', which compares it with {name}"),
                );
            }
        }
    }

    /// Warns about statements after a return, except in the built-in VCL.
    fn unreachable(&mut self, body: &[Stmt]) {
        for (i, stmt) in body.iter().enumerate() {
            if let Stmt::If { arms, otherwise } = stmt {
                for (_, arm) in arms {
                    self.unreachable(arm);
                }
                self.unreachable(otherwise);
            }
            if ends(stmt) {
                let next = body[i + 1..].iter().find_map(first_place);
                if let Some(at) = next.filter(|at| self.is_users(*at)) {
                    let hint = "the code before it always returns; remove it or move it up";
                    self.warn(at, "This statement is never reached [unreachable]", hint);
                }
                return;
            }
        }
    }

    /// Warns about `set beresp.ttl = 0s; return (deliver);`, with which clients are served one after the other.
    fn zero_ttl(&mut self, body: &[Stmt]) {
        let mut zero = None;
        for stmt in body {
            match stmt {
                Stmt::If { arms, otherwise } => {
                    for (_, arm) in arms {
                        self.zero_ttl(arm);
                    }
                    self.zero_ttl(otherwise);
                }
                Stmt::Set { at, target: Var::BerespTtl, op: SetOp::Assign, value } => {
                    zero = matches!(value.kind, ExprKind::Real(ttl) if ttl <= 0.0).then_some(*at);
                }
                Stmt::Set { target: Var::BerespUncacheable, .. } => zero = None,
                Stmt::Return { at, how: Return::Plain(Action::Deliver) } if self.is_users(*at) => {
                    if let Some(at) = zero.take() {
                        let hint = "also 'set beresp.uncacheable = true;' with a ttl such as 120s, so that \
                                    clients are served in parallel";
                        let message = "A cacheable response with a zero ttl makes clients wait for each other [zero-ttl]";
                        self.warn(at, message, hint);
                    }
                }
                _ => {}
            }
        }
    }

    /// Warns about bans that depend on the request, which can be tested only when a request arrives.
    fn ban(&mut self, stmt: &Stmt) {
        let (at, value) = match stmt {
            Stmt::Ban { at, value } => (*at, value),
            Stmt::Do { at, call } => match &call.kind {
                ExprKind::Call { function, args, .. } if self.is_ban(*function) => match args.first() {
                    Some(Some(value)) => (*at, value),
                    _ => return,
                },
                _ => return,
            },
            _ => return,
        };
        let mut on_request = false;
        each_literal(value, &mut |text| on_request |= text.split([' ', '&']).any(|w| w.starts_with("req.")));
        if on_request {
            let hint =
                "in vcl_backend_response 'set beresp.http.x-url = bereq.url;', and ban on obj.http.x-url";
            self.warn(
                at,
                "The lurker cannot test a ban on req.*; it remains until every object was requested [ban-req]",
                hint,
            );
        }
    }

    /// Warns about deprecated functions of Varnish, and suggests replacements.
    fn deprecated(&mut self, stmt: &Stmt) {
        let mut old = Vec::new();
        each_own_expr(stmt, &mut |e| {
            if let ExprKind::Call { function, at, .. } = e.kind
                && let Some(name) = self.function_of_std(function)
                && let Some((_, instead)) = DEPRECATED.iter().find(|(name_, _)| *name_ == name)
            {
                old.push((at, name.to_owned(), *instead));
            }
        });
        for (at, name, instead) in old {
            let message = format!("std.{name} exists only for old VCL [deprecated]");
            self.warn(at, &message, &format!("use '{instead}'"));
        }
    }

    fn function_of_std(&self, function: u32) -> Option<&str> {
        let function = self.program.modules.functions.get(function as usize)?;
        let module = self.program.modules.imports.get(function.import as usize)?;
        (module.module == "std" && function.object.is_empty()).then_some(function.name.as_str())
    }

    fn is_ban(&self, function: u32) -> bool {
        self.function_of_std(function) == Some("ban")
    }

    /// Warns about a request header that is hashed without normalization, which creates one object for each spelling.
    fn raw_hash(&mut self) {
        let mut tidied = Vec::new();
        let mut hashed = Vec::new();
        for sub in &self.program.subs {
            each_stmt(&sub.body, &mut |stmt| match stmt {
                Stmt::SetHeader { http: HttpId::Req, header, .. }
                | Stmt::UnsetHeader { http: HttpId::Req, header, .. } => tidied.push(*header),
                Stmt::HashData { at, value } => each_expr(value, &mut |e| match &e.kind {
                    ExprKind::Header(HttpId::Req, header) => hashed.push((*at, *header)),
                    // The result of a substitution is assumed to have few values.
                    ExprKind::Regsub { subject, .. } => each_expr(subject, &mut |e| {
                        if let ExprKind::Header(HttpId::Req, header) = e.kind {
                            tidied.push(header);
                        }
                    }),
                    _ => {}
                }),
                _ => {}
            });
        }
        let name = |header: u32| self.program.headers.get(header as usize).map_or("", String::as_str);
        let known: Vec<&str> = tidied.into_iter().map(name).collect();
        let raw: Vec<(At, String)> = hashed
            .into_iter()
            .map(|(at, header)| (at, name(header).to_owned()))
            .filter(|(_, n)| {
                !PLAIN.iter().any(|p| n.eq_ignore_ascii_case(p))
                    && !known.iter().any(|k| k.eq_ignore_ascii_case(n))
            })
            .collect();
        for (at, name) in raw {
            let message = format!("The hash depends on req.http.{name} as the client sent it [raw-hash]");
            self.warn(at, &message, "reduce the header to the few values that matter, in vcl_recv");
        }
    }

    /// Warns about `return (deliver)` that skips the built-in checks without a test of Set-Cookie.
    fn cached_cookies(&mut self) {
        let Some(response) = self.program.method(Method::BackendResponse) else { return };
        let mut looked = false;
        let here = 1 << Method::BackendResponse as u32;
        for sub in self.program.subs.iter().filter(|s| s.reachable_from & here != 0 && self.is_users(s.at)) {
            each_stmt(&sub.body, &mut |stmt| {
                looked |=
                    self.is_users(stmt.at().unwrap_or_default()) && names_set_cookie(self.program, stmt);
            });
        }
        let unconditional = response.body.iter().find_map(|stmt| match stmt {
            Stmt::Return { at, how: Return::Plain(Action::Deliver) } => Some(*at),
            _ => None,
        });
        if let Some(at) = unconditional.filter(|at| !looked && self.is_users(*at)) {
            let message = "This skips the built-in check of Set-Cookie: cookies can be cached for all clients [cached-cookie]";
            self.warn(at, message, "remove the return, or handle beresp.http.Set-Cookie before it");
        }
    }
}

fn names_set_cookie(program: &Program, stmt: &Stmt) -> bool {
    let is_it = |header: u32| {
        program.headers.get(header as usize).is_some_and(|h| h.eq_ignore_ascii_case("set-cookie"))
    };
    let mut named = match stmt {
        Stmt::UnsetHeader { http: HttpId::Beresp, header, .. } => is_it(*header),
        _ => false,
    };
    each_own_expr(stmt, &mut |e| {
        named |= matches!(e.kind, ExprKind::Header(HttpId::Beresp, header) if is_it(header));
    });
    named
}

/// Returns whether no statement after this one runs.
fn ends(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Return { .. } => true,
        Stmt::If { arms, otherwise } => {
            otherwise.iter().any(ends) && arms.iter().all(|(_, arm)| arm.iter().any(ends))
        }
        _ => false,
    }
}

/// Returns the location of a statement or of the first one inside it. Trace points do not count.
fn first_place(stmt: &Stmt) -> Option<At> {
    match stmt {
        Stmt::Trace { .. } => None,
        Stmt::If { arms, otherwise } => {
            let inside = arms.iter().flat_map(|(_, arm)| arm).chain(otherwise);
            inside.into_iter().find_map(first_place)
        }
        stmt => stmt.at(),
    }
}

fn each_stmt<'a>(body: &'a [Stmt], visit: &mut dyn FnMut(&'a Stmt)) {
    for stmt in body {
        visit(stmt);
        if let Stmt::If { arms, otherwise } = stmt {
            for (_, arm) in arms {
                each_stmt(arm, visit);
            }
            each_stmt(otherwise, visit);
        }
    }
}

/// Visits the expressions of a statement itself, including conditions but not blocks.
fn each_own_expr(stmt: &Stmt, visit: &mut dyn FnMut(&Expr)) {
    match stmt {
        Stmt::If { arms, .. } => arms.iter().for_each(|(condition, _)| each_expr(condition, visit)),
        Stmt::Set { value, .. }
        | Stmt::SetHeader { value, .. }
        | Stmt::SetBody { value, .. }
        | Stmt::HashData { value, .. }
        | Stmt::Ban { value, .. }
        | Stmt::Synthetic { value, .. }
        | Stmt::Do { call: value, .. } => each_expr(value, visit),
        _ => {}
    }
}

fn each_expr(expr: &Expr, visit: &mut dyn FnMut(&Expr)) {
    visit(expr);
    match &expr.kind {
        ExprKind::Concat(parts) | ExprKind::And(parts) | ExprKind::Or(parts) => {
            for p in parts {
                each_expr(p, visit);
            }
        }
        ExprKind::ToString(inner)
        | ExprKind::Convert(inner)
        | ExprKind::Defined(inner)
        | ExprKind::Not(inner)
        | ExprKind::Negate(inner)
        | ExprKind::ChangeCase { value: inner, .. }
        | ExprKind::ResolveBackend(inner)
        | ExprKind::StorageField(inner, _) => each_expr(inner, visit),
        ExprKind::Compare(_, a, b) | ExprKind::Arith(_, a, b) => {
            each_expr(a, visit);
            each_expr(b, visit);
        }
        ExprKind::Match { subject, .. } => each_expr(subject, visit),
        ExprKind::Regsub { subject, replacement, .. } => {
            each_expr(subject, visit);
            each_expr(replacement, visit);
        }
        ExprKind::Call { args, .. } => args.iter().flatten().for_each(|a| each_expr(a, visit)),
        _ => {}
    }
}

fn each_literal(expr: &Expr, visit: &mut dyn FnMut(&str)) {
    each_expr(expr, &mut |e| {
        if let ExprKind::Str(text) = &e.kind {
            visit(&text.lossy());
        }
    });
}
