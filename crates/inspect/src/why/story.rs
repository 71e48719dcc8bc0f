//! The known facts of a request: its transactions, the texts of its VCL, the bans before it, and the past of its page.

use std::cell::Cell;
use std::collections::BTreeMap;

use lacquer_shm::Tag;
use lacquer_vcl::places::{self, returns, trace_point};

use super::history::Past;
use crate::transaction::{Kind, Transaction};

/// The last line of a VCL that the options of `lacquer run` mean.
pub const WRITTEN: &str = "# Written by lacquer run, which replaces this file at its next start.";

/// All facts from which an explanation follows.
#[derive(Clone, Debug, Default)]
pub struct Story {
    pub transactions: BTreeMap<u64, Transaction>,
    /// The request that the user asks about.
    pub root: u64,
    pub sources: Vec<SourceText>,
    /// The bans that existed before the request; `None` if they are not known.
    pub bans: Option<Vec<Ban>>,
    pub past: Past,
}

/// A text of a VCL, by the number that trace points have for it.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceText {
    pub number: usize,
    pub name: String,
    pub lines: Vec<String>,
}

/// A ban of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Ban {
    pub at: f64,
    pub expression: String,
}

/// A statement of a VCL that decided something.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub file: String,
    pub line: usize,
    pub text: String,
    /// The subroutine that contains it.
    pub sub: String,
    pub is_builtin: bool,
}

impl Place {
    /// Returns the place in words.
    pub fn words(&self) -> String {
        if self.is_builtin {
            return format!("in {} of the built-in VCL (line {}: `{}`)", self.sub, self.line, self.text);
        }
        format!("at line {} of {}, in {} (`{}`)", self.line, self.file, self.sub, self.text)
    }
}

/// A subroutine that ran and the action that it returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// As in VCL: `vcl_recv`.
    pub sub: String,
    pub action: String,
    /// The index of the record of its return.
    pub end: usize,
    pub place: Option<Place>,
}

impl Story {
    pub fn transaction(&self, vxid: u64) -> Option<&Transaction> {
        self.transactions.get(&vxid)
    }

    /// Returns whether the VCL was written from options of `lacquer run`: the user has no VCL to change.
    pub fn is_of_options(&self) -> bool {
        self.sources.iter().any(|source| source.lines.last().is_some_and(|line| line == WRITTEN))
    }

    /// Returns a request and those that replaced it by restarts.
    pub fn requests(&self, first: u64) -> Vec<&Transaction> {
        self.chain(first, "restart")
    }

    fn chain(&self, first: u64, reason: &str) -> Vec<&Transaction> {
        let mut all: Vec<&Transaction> = Vec::new();
        let mut next = self.transaction(first);
        while let Some(found) = next.filter(|found| all.iter().all(|other| other.vxid != found.vxid)) {
            all.push(found);
            let link = found.links().into_iter().find(|(kind, _, why)| *kind == found.kind && why == reason);
            next = link.and_then(|(_, vxid, _)| self.transaction(vxid));
        }
        all
    }

    /// Returns the fetch of a request with its retries. A background fetch counts.
    pub fn fetches(&self, request: &Transaction) -> Vec<&Transaction> {
        let link = request.links().into_iter().find(|(kind, _, why)| *kind == Kind::Fetch && why != "pipe");
        link.map_or_else(Vec::new, |(_, vxid, _)| self.chain(vxid, "retry"))
    }

    /// Returns the includes of a page.
    pub fn includes(&self, request: &Transaction) -> Vec<u64> {
        let links = request.links().into_iter();
        links
            .filter(|(kind, _, why)| *kind == Kind::Request && why.starts_with("esi"))
            .map(|link| link.1)
            .collect()
    }

    /// Returns the subroutines that ran in a transaction.
    pub fn calls(&self, of: &Transaction) -> Vec<Call> {
        let mut calls = Vec::new();
        let mut sub = None;
        for (at, record) in of.records().enumerate() {
            match record.tag {
                Tag::VCL_call => sub = Some(format!("vcl_{}", record.shown().to_ascii_lowercase())),
                Tag::VCL_return => {
                    let action = record.shown();
                    let place = self.place(of, at, &|line| returns(line, &action));
                    calls.extend(sub.take().map(|sub| Call { sub, action, end: at, place }));
                }
                _ => {}
            }
        }
        calls
    }

    /// Returns the last call of a subroutine.
    pub fn call(&self, of: &Transaction, sub: &str) -> Option<Call> {
        self.calls(of).into_iter().rfind(|call| call.sub == sub)
    }

    /// Finds the statement that wrote a record: the first one that `is_it` accepts behind the last trace point before the
    /// record, in the same subroutine. A subroutine that was called may have ended without it: then the trace points
    /// before that count.
    pub fn place(&self, of: &Transaction, before: usize, is_it: &dyn Fn(&str) -> bool) -> Option<Place> {
        if self.sources.is_empty() {
            return None;
        }
        let earlier = of.records().take(before).rev().take_while(|record| record.tag != Tag::VCL_call);
        let mut traces = earlier.filter(|record| record.tag == Tag::VCL_trace);
        traces.find_map(|trace| self.statement(&trace.shown(), is_it))
    }

    fn statement(&self, trace: &str, is_it: &dyn Fn(&str) -> bool) -> Option<Place> {
        let (number, line) = trace_point(trace)?;
        let source = self.sources.iter().find(|source| source.number == number)?;
        let found = places::statement(&source.lines, line, is_it)?;
        Some(Place {
            file: crate::page::short(source.name.as_bytes()),
            line: found.line,
            text: crate::page::short(found.text.as_bytes()),
            sub: found.sub,
            is_builtin: places::is_builtin(&source.name),
        })
    }

    /// Finds a statement of the user's VCL that ran: it follows a trace point without another block between them.
    pub fn ran(&self, of: &Transaction, text: &str) -> Option<Place> {
        of.all(Tag::VCL_trace).map(crate::page::plain).find_map(|trace| {
            let column = trace.rsplit('.').next()?.parse::<usize>().ok()?;
            let (is_first, has_run) = (Cell::new(true), Cell::new(false));
            let place = self.statement(&trace, &|line| {
                let line = line.split('#').next().unwrap_or_default();
                let start = if is_first.replace(false) { column.saturating_sub(1) } else { 0 };
                let rest = line.get(start..).unwrap_or_default();
                let (end, found) = (rest.find(['{', '}']), rest.find(text));
                has_run.set(found.is_some_and(|found| end.is_none_or(|end| found < end)));
                end.is_some() || found.is_some()
            });
            place.filter(|place| has_run.get() && !place.is_builtin)
        })
    }
}

/// Parses the reply of `vcl.show -v`: each text follows a line with its number, length and name.
pub fn parse_sources(reply: &str) -> Vec<SourceText> {
    let mut sources: Vec<SourceText> = Vec::new();
    let mut rest = reply;
    while let Some(at) = rest.find("// VCL.SHOW ") {
        let Some((head, text)) = rest[at..].split_once('\n') else { break };
        let mut words = head.splitn(5, ' ').skip(2);
        let number = words.next().and_then(|word| word.parse().ok());
        let length = words.next().and_then(|word| word.parse::<usize>().ok());
        let (Some(number), Some(length)) = (number, length) else { break };
        let name = words.next().unwrap_or_default().to_owned();
        let Some(body) = text.get(..length.min(text.len())) else { break };
        sources.push(SourceText { number, name, lines: body.lines().map(str::to_owned).collect() });
        rest = &text[body.len()..];
    }
    sources
}

/// Parses the reply of `ban.list`. Bans that are completed have no effect any more.
pub fn parse_bans(reply: &str) -> Vec<Ban> {
    let ban = |line: &str| {
        let mut words = line.split_whitespace();
        let at = words.next()?.parse().ok()?;
        let _refs: u64 = words.next()?.parse().ok()?;
        let flags = words.next()?;
        let expression = words.collect::<Vec<_>>().join(" ");
        (!flags.contains('C') && !expression.is_empty()).then_some(Ban { at, expression })
    };
    reply.lines().filter_map(ban).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_follow_their_heads() {
        let reply = "// VCL.SHOW 0 7 /a b.vcl\nvcl 4;\n\n// VCL.SHOW 1 3 <builtin>\nabc";
        let sources = parse_sources(reply);
        assert_eq!(sources.len(), 2);
        assert_eq!((sources[0].name.as_str(), sources[1].lines[0].as_str()), ("/a b.vcl", "abc"));
        assert_eq!(parse_sources("// VCL.SHOW 0 99999 x\nabc").len(), 1);
        assert_eq!(parse_sources("// VCL.SHOW x\n"), []);
    }

    #[test]
    fn completed_bans_are_left_out() {
        let reply = "Present bans:\n1795732699.722518     4 C  \n1795732700.5  0 -  req.url ~ /a b\nx\n";
        assert_eq!(parse_bans(reply), [Ban { at: 1_795_732_700.5, expression: "req.url ~ /a b".into() }]);
    }
}
