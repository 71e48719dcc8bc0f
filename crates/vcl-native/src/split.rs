//! Cuts very long subroutines into pieces, each a subroutine of its own that the rest calls: the code
//! generator's time and memory grow faster than the text it is given.

use lacquer_vcl::program::{Return, Stmt, Sub};

use crate::reach::statements;

/// So many statements make a piece.
const PIECE: usize = 1000;
/// So many conditions of one `if` do: each piece calls the next, and calls nest only so deep.
const CONDITIONS: usize = 4000;

/// Cuts what is long; the pieces come after all other subs.
pub fn long_subs(subs: &mut Vec<Sub>) {
    for index in 0..subs.len() {
        if statements(&subs[index].body) <= PIECE {
            continue;
        }
        let mut body = std::mem::take(&mut subs[index].body);
        let mut cutter = Cutter { subs, whole: index };
        cutter.cut(&mut body);
        subs[index].body = body;
    }
}

struct Cutter<'s> {
    subs: &'s mut Vec<Sub>,
    /// The sub that is being cut.
    whole: usize,
}

impl Cutter<'_> {
    fn cut(&mut self, body: &mut Vec<Stmt>) {
        for stmt in body.iter_mut() {
            if let Stmt::If { arms, otherwise } = stmt {
                for (_, arm) in arms.iter_mut().filter(|(_, arm)| statements(arm) > PIECE) {
                    self.cut(arm);
                }
                self.cut(otherwise);
                while arms.len() > CONDITIONS {
                    let rest = arms.split_off((arms.len() - 1) / CONDITIONS * CONDITIONS);
                    let rest = Stmt::If { arms: rest, otherwise: std::mem::take(otherwise) };
                    // `return;` in a piece would end the piece alone.
                    *otherwise = if leaves(&rest) { vec![rest] } else { vec![self.piece(vec![rest])] };
                }
            }
        }
        if statements(body) <= PIECE {
            return;
        }
        let mut kept = Vec::new();
        let (mut group, mut size) = (Vec::new(), 0);
        for stmt in std::mem::take(body) {
            if leaves(&stmt) {
                kept.append(&mut group);
                kept.push(stmt);
                size = 0;
                continue;
            }
            size += statements(std::slice::from_ref(&stmt));
            group.push(stmt);
            if size >= PIECE {
                kept.push(self.piece(std::mem::take(&mut group)));
                size = 0;
            }
        }
        kept.append(&mut group);
        *body = kept;
    }

    /// Makes a sub of statements; what remains is the call of it.
    fn piece(&mut self, body: Vec<Stmt>) -> Stmt {
        let whole = &self.subs[self.whole];
        let (at, sub) = (whole.at, self.subs.len() as u32);
        let (reachable_from, allowed) = (whole.reachable_from, whole.allowed);
        let name = whole.name.clone();
        self.subs.push(Sub { name, at, body, reachable_from, allowed });
        Stmt::CallSub { at, sub }
    }
}

/// Returns whether a bare `return;` is among the statements.
fn leaves(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Return { how: Return::FromSub, .. } => true,
        Stmt::If { arms, otherwise } => {
            arms.iter().any(|(_, arm)| arm.iter().any(leaves)) || otherwise.iter().any(leaves)
        }
        _ => false,
    }
}
