//! Analysis of calls: which methods may wait, how deeply subroutines nest, and how much stack they need.

use lacquer_vcl::program::{Expr, ExprKind, Program, Return, Stmt};
use lacquer_vcl_runtime::Instance;
use lacquer_vcl_runtime::ctx::MAX_DYNAMIC_STACK;

/// Maximum nesting of calls by name.
const MAX_DEPTH: usize = 100;
/// Maximum number of bytes of stack of a method's subs: half of a reactor's stack, on which they run if they cannot wait.
const MAX_STACK: usize = 1 << 20;

/// Returns the number of statements, including those in blocks.
pub fn statements(body: &[Stmt]) -> usize {
    let inside = |stmt: &Stmt| match stmt {
        Stmt::If { arms, otherwise } => {
            statements(otherwise) + arms.iter().map(|(_, arm)| 1 + statements(arm)).sum::<usize>()
        }
        _ => 1,
    };
    body.iter().map(inside).sum()
}

/// The references in a sub's own code.
#[derive(Default)]
struct Uses {
    calls: Vec<u32>,
    /// Subs used as values, which can be called dynamically.
    values: Vec<u32>,
    functions: Vec<u32>,
    /// Whether a call determines its sub at run time, such as one that an object has stored.
    computed: bool,
}

impl Uses {
    fn of(body: &[Stmt]) -> Uses {
        let mut uses = Uses::default();
        uses.stmts(body);
        uses
    }

    fn stmts(&mut self, body: &[Stmt]) {
        for stmt in body {
            match stmt {
                Stmt::Set { value, .. }
                | Stmt::SetHeader { value, .. }
                | Stmt::SetBody { value, .. }
                | Stmt::Ban { value, .. }
                | Stmt::Synthetic { value, .. }
                | Stmt::HashData { value, .. } => self.expr(value),
                Stmt::Do { call, .. } => self.expr(call),
                Stmt::CallDynamic { sub, .. } => {
                    self.computed |= !matches!(sub.kind, ExprKind::Sub(_));
                    self.expr(sub);
                }
                Stmt::CallSub { sub, .. } => self.calls.push(*sub),
                Stmt::New { args, .. } => self.args(args),
                Stmt::If { arms, otherwise } => {
                    for (condition, body) in arms {
                        self.expr(condition);
                        self.stmts(body);
                    }
                    self.stmts(otherwise);
                }
                Stmt::Return { how, .. } => self.how(how),
                Stmt::Unset { .. } | Stmt::UnsetHeader { .. } | Stmt::Trace { .. } => {}
            }
        }
    }

    fn how(&mut self, how: &Return) {
        match how {
            Return::Status { status, reason, .. } => {
                self.expr(status);
                if let Some(reason) = reason {
                    self.expr(reason);
                }
            }
            Return::PassFor(e) | Return::Fail(Some(e)) => self.expr(e),
            Return::Plain(_) | Return::Vcl(_) | Return::Fail(None) | Return::FromSub => {}
        }
    }

    fn args(&mut self, args: &[Option<Expr>]) {
        for e in args.iter().flatten() {
            self.expr(e);
        }
    }

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Sub(sub) => self.values.push(*sub),
            ExprKind::Call { function, args, .. } => {
                self.functions.push(*function);
                self.args(args);
            }
            ExprKind::Concat(all) | ExprKind::And(all) | ExprKind::Or(all) => {
                for e in all {
                    self.expr(e);
                }
            }
            ExprKind::ToString(e)
            | ExprKind::Convert(e)
            | ExprKind::Defined(e)
            | ExprKind::Not(e)
            | ExprKind::Negate(e)
            | ExprKind::StorageField(e, _)
            | ExprKind::ChangeCase { value: e, .. }
            | ExprKind::ResolveBackend(e)
            | ExprKind::SubCallable(e) => self.expr(e),
            ExprKind::Compare(_, a, b) | ExprKind::Arith(_, a, b) => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Match { subject, regex, .. } => {
                self.expr(subject);
                self.expr(regex);
            }
            ExprKind::AclMatch { ip, acl, .. } => {
                self.expr(ip);
                self.expr(acl);
            }
            ExprKind::Regsub { subject, regex, replacement, .. } => {
                self.expr(subject);
                self.expr(regex);
                self.expr(replacement);
            }
            _ => {}
        }
    }
}

/// Returns for each sub whether it can be called dynamically because the program uses it as a value.
pub fn dynamic_subs(program: &Program) -> Vec<bool> {
    let mut dynamic = vec![false; program.subs.len()];
    for sub in &program.subs {
        for value in Uses::of(&sub.body).values {
            if let Some(flag) = dynamic.get_mut(value as usize) {
                *flag = true;
            }
        }
    }
    dynamic
}

/// Returns the methods that can reach a function that may wait, as bits. A computed call can reach each sub that the
/// program uses as a value anywhere.
pub fn suspending_methods(instance: &Instance) -> u32 {
    let program = &instance.program;
    let uses: Vec<Uses> = program.subs.iter().map(|sub| Uses::of(&sub.body)).collect();
    let suspends = |f: &u32| instance.imports.functions.get(*f as usize).is_some_and(|f| f.suspends);
    let mut bits = 0;
    for (method, &root) in program.methods.iter().enumerate() {
        let mut seen = vec![false; uses.len()];
        let mut open = vec![root];
        while let Some(sub) = open.pop() {
            let Some(found) = uses.get(sub as usize) else { continue };
            if std::mem::replace(&mut seen[sub as usize], true) {
                continue;
            }
            if found.functions.iter().any(suspends) {
                bits |= 1 << method;
                break;
            }
            open.extend(found.calls.iter().chain(&found.values));
            if found.computed {
                open.extend(uses.iter().flat_map(|uses| &uses.values));
            }
        }
    }
    bits
}

/// Checks that calls by name neither recurse nor nest too deeply for the stack.
pub fn check_depth(program: &Program) -> Result<(), String> {
    let calls: Vec<Vec<u32>> = program.subs.iter().map(|sub| Uses::of(&sub.body).calls).collect();
    // Relaxation: with recursion the depths grow until they exceed the limit.
    let mut depth = vec![1usize; calls.len()];
    let mut settled = false;
    while !settled && depth.iter().all(|&d| d <= MAX_DEPTH) {
        settled = true;
        for (sub, called) in calls.iter().enumerate() {
            let below = called.iter().filter_map(|&c| depth.get(c as usize)).max().copied().unwrap_or(0);
            settled &= depth[sub] == below + 1;
            depth[sub] = below + 1;
        }
    }
    if depth.iter().all(|&d| d <= MAX_DEPTH) {
        return Ok(());
    }
    let deepest = (0..calls.len()).max_by_key(|&sub| depth[sub]).unwrap_or_default();
    let name = program.subs.get(deepest).map_or("", |s| s.name.as_str());
    Err(format!("Calls below sub {name} nest deeper than {MAX_DEPTH} or recurse"))
}

/// Returns the number of bytes of stack that the subs of each method need, from those of a call of each sub. The program has
/// passed [`check_depth`]. Fails if a method needs too many.
pub fn stacks(program: &Program, frames: &[usize]) -> Result<Vec<usize>, String> {
    let calls: Vec<Vec<u32>> = program.subs.iter().map(|sub| Uses::of(&sub.body).calls).collect();
    let mut needs = frames.to_vec();
    let mut settled = false;
    // Relaxation: each pass extends the longest paths by a call.
    while !settled {
        settled = true;
        for (sub, called) in calls.iter().enumerate() {
            let below = called.iter().filter_map(|&c| needs.get(c as usize)).max().copied().unwrap_or(0);
            settled &= needs[sub] == frames[sub] + below;
            needs[sub] = frames[sub] + below;
        }
    }
    let dynamic = dynamic_subs(program).into_iter().zip(&needs);
    let largest = dynamic.filter(|&(is_dynamic, _)| is_dynamic).map(|(_, &need)| need).max();
    // From the outermost dynamic call to the innermost one, and the calls by name there.
    let dynamic = largest.map_or(0, |largest| MAX_DYNAMIC_STACK + largest);
    let all = program.methods.iter().map(|&root| {
        let need = dynamic + needs.get(root as usize).copied().unwrap_or(0);
        if need <= MAX_STACK {
            return Ok(need);
        }
        let name = program.subs.get(root as usize).map_or("", |sub| sub.name.as_str());
        let [need, most] = [need, MAX_STACK].map(|bytes| bytes.div_ceil(1024));
        Err(format!(
            "Sub {name} needs {need} kB of stack with the subs that it calls, and at most {most} kB are possible: it has \
             too many conditions"
        ))
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use lacquer_vcl::program::{At, Sub};
    use lacquer_vcl::types::Type;

    use super::*;

    const AT: At = At { source: 0, line: 1, column: 1 };

    fn program(calls: &[&[u32]]) -> Program {
        let sub = |calls: &&[u32]| Sub {
            name: "some".to_owned(),
            at: AT,
            body: calls.iter().map(|&sub| Stmt::CallSub { at: AT, sub }).collect(),
            reachable_from: 0,
            allowed: 0,
        };
        Program { subs: calls.iter().map(sub).collect(), methods: vec![0, 3], ..Program::default() }
    }

    #[test]
    fn stacks_have_room_for_the_largest_path_of_calls() {
        let mut program = program(&[&[1, 2], &[3], &[], &[2]]);
        assert_eq!(stacks(&program, &[10, 200, 900, 3000]), Ok(vec![4110, 3900]));
        assert_eq!(stacks(&program, &[10, 20, 90_000, 30]), Ok(vec![90_060, 90_030]));
        let refused = stacks(&program, &[1, 1, MAX_STACK - 1, 1]).expect_err("it is too much");
        assert!(refused.starts_with("Sub some needs 1025 kB"), "{refused}");
        // A sub that is a value may be called anywhere, and call others.
        let value = Expr { ty: Type::Sub, kind: ExprKind::Sub(3) };
        program.subs[2].body.push(Stmt::CallDynamic { at: AT, sub: value });
        let around = MAX_DYNAMIC_STACK + 3900;
        assert_eq!(stacks(&program, &[10, 200, 900, 3000]), Ok(vec![around + 4110, around + 3900]));
    }
}
