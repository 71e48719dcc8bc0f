//! Splits very long subroutines into pieces, separate subroutines that the remaining one calls, because the code
//! generator's time and memory grow faster than the length of a subroutine.

use lacquer_vcl::program::{Return, Stmt, Sub};

use crate::reach::statements;

/// Number of statements in a piece.
const PIECE: usize = 1000;
/// Number of conditions of one `if` in a piece. It is larger, because each such piece calls the next and nesting is
/// limited.
const CONDITIONS: usize = 4000;

/// Splits long subs. The pieces are appended after all other subs.
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
    /// The index of the sub that is being split.
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
                    // `return;` in a piece would end only the piece.
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

    /// Moves statements into a new sub. Returns the call of it.
    fn piece(&mut self, body: Vec<Stmt>) -> Stmt {
        let whole = &self.subs[self.whole];
        let (at, sub) = (whole.at, self.subs.len() as u32);
        let (reachable_from, allowed) = (whole.reachable_from, whole.allowed);
        let name = whole.name.clone();
        self.subs.push(Sub { name, at, body, reachable_from, allowed });
        Stmt::CallSub { at, sub }
    }
}

/// Returns whether the statement contains a bare `return;`.
fn leaves(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Return { how: Return::FromSub, .. } => true,
        Stmt::If { arms, otherwise } => {
            arms.iter().any(|(_, arm)| arm.iter().any(leaves)) || otherwise.iter().any(leaves)
        }
        _ => false,
    }
}
