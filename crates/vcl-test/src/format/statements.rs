//! The statements of a test file.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use super::details;
use super::lines::{Block, Fault};
use super::model::{
    Action, Answer, ClientRequest, Count, ExpectedFetch, ExpectedResponse, Health, OriginRule, Page, Step,
    Suite, Test,
};
use super::quantity::duration;
use super::words::{Word, words};
use crate::suggest::suggest;

const KEYWORDS: [&str; 8] = ["test", "origin", "after", "expect", "ban", "tag", "backend", "param"];
/// The words that are methods in the statements `origin` and `expect fetch`; others are names of backends.
const METHODS: [&str; 16] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PURGE", "BAN",
    "REFRESH", "PROPFIND", "REPORT", "MKCOL", "QUERY",
];
/// The outcomes that a test may expect. The first four also stand for the more precise ones.
const OUTCOMES: [&str; 30] = [
    "hit",
    "miss",
    "pass",
    "failed",
    "hit-in-progress",
    "graced-hit",
    "coalesced-hit",
    "miss-expired",
    "miss-purged",
    "miss-invalidated",
    "miss-banned",
    "miss-tagged",
    "miss-evicted",
    "miss-variant",
    "miss-forced",
    "miss-not-stored",
    "revalidated",
    "hit-for-miss",
    "hit-for-pass",
    "pass-method",
    "pass-cookie",
    "pass-authorization",
    "pass-vcl",
    "pipe",
    "synth",
    "purged",
    "stale-if-error",
    "origin-failed",
    "vcl-failed",
    "rejected",
];

/// Parses the statements of a file.
pub fn parse(blocks: Vec<Block<'_>>) -> Result<Suite, Fault> {
    let mut suite = Suite::default();
    for block in blocks {
        let line = block.head.number;
        let words = words(block.head.text).map_err(|why| Fault::new(line, why))?;
        let statement = Statement { block, words };
        if statement.keyword() == "test" {
            let name = statement.name_of_test()?;
            if suite.tests.iter().any(|test| test.name == name) {
                return Err(Fault::new(line, format!("there is another test `{name}`")));
            }
            suite.tests.push(Test { name, line, steps: Vec::new() });
            continue;
        }
        let step = Step { line, action: statement.action()? };
        match suite.tests.last_mut() {
            Some(test)
                if step.expects()
                    && !test.steps.iter().any(|step| matches!(step.action, Action::Request(_))) =>
            {
                return Err(Fault::new(line, "there is no request yet of which something could be expected"));
            }
            Some(test) => test.steps.push(step),
            None if matches!(step.action, Action::Origin(_) | Action::Backend(..) | Action::Param(..)) => {
                suite.setup.push(step);
            }
            None => {
                return Err(Fault::new(
                    line,
                    "before the first test, only origin, backend and param are allowed",
                ));
            }
        }
    }
    Ok(suite)
}

struct Statement<'t> {
    block: Block<'t>,
    words: Vec<Word>,
}

impl Statement<'_> {
    fn fault(&self, what: impl Into<String>) -> Fault {
        Fault::new(self.block.head.number, what)
    }

    fn word(&self, at: usize) -> Result<&str, Fault> {
        let word = self.words.get(at).ok_or_else(|| self.fault("the statement is not complete"))?;
        word.text().map_err(|why| self.fault(why))
    }

    fn keyword(&self) -> &str {
        self.words
            .first()
            .filter(|word| !word.is_quoted)
            .and_then(|word| word.text().ok())
            .unwrap_or_default()
    }

    /// Returns the text behind the keyword as it is written.
    fn rest(&self) -> &str {
        self.block.head.text.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim())
    }

    fn name_of_test(&self) -> Result<String, Fault> {
        match self.words.len() {
            1 => Err(self.fault("a test needs a name: test \"a page is cached\"")),
            2 => self.word(1).map(str::to_owned),
            _ => Ok(self.rest().to_owned()),
        }
    }

    fn action(&self) -> Result<Action, Fault> {
        let keyword = self.keyword();
        if !self.block.details.is_empty() && ["after", "ban", "tag", "backend", "param"].contains(&keyword) {
            let line = self.block.details[0].number;
            return Err(Fault::new(line, format!("the line is indented, but `{keyword}` has no details")));
        }
        match keyword {
            "origin" => self.origin(),
            "after" if self.words.len() == 2 => {
                let seconds = duration(self.word(1)?).map_err(|why| self.fault(why))?;
                if seconds < 0.0 {
                    return Err(self.fault("time does not go back"));
                }
                Ok(Action::After(seconds))
            }
            "after" => Err(self.fault("write a duration: after 10s")),
            "expect" => self.expect(),
            "ban" if self.words.len() > 1 => Ok(Action::Ban(self.rest().to_owned())),
            "tag" if self.words.len() == 2 => Ok(Action::Tag(self.word(1)?.to_owned())),
            "backend" if self.words.len() == 3 => {
                let health = match self.word(2)? {
                    "sick" => Health::Sick,
                    "healthy" => Health::Healthy,
                    "auto" => Health::Auto,
                    other => {
                        return Err(self.fault(format!("a backend is sick, healthy or auto, not `{other}`")));
                    }
                };
                Ok(Action::Backend(self.word(1)?.to_owned(), health))
            }
            "param" if self.words.len() == 3 => {
                Ok(Action::Param(self.word(1)?.to_owned(), self.word(2)?.to_owned()))
            }
            "ban" | "tag" | "backend" | "param" => {
                Err(self
                    .fault(format!("`{keyword}` needs other words; docs/vcl-test.md lists the statements")))
            }
            _ if keyword.starts_with(|c: char| c.is_ascii_uppercase()) => self.request(),
            _ => Err(self.unknown()),
        }
    }

    fn unknown(&self) -> Fault {
        let first = self.block.head.text.split_whitespace().next().unwrap_or_default();
        let first = lacquer_inspect::page::short(first.as_bytes());
        let hint = suggest(&first, &KEYWORDS).unwrap_or_else(|| {
            format!("a line begins with {} or the method of a request", KEYWORDS.join(", "))
        });
        self.fault(format!("there is no statement `{first}`: {hint}"))
    }

    /// Parses `[BACKEND] [METHOD] [URL]` behind the first words. Returns them and the number of words.
    fn target(&self, from: usize) -> Result<([Option<String>; 3], usize), Fault> {
        let (mut target, mut at) = ([None, None, None], from);
        while at < self.words.len() {
            let word = self.word(at)?;
            let part = match word {
                _ if word.starts_with(['/', '*']) => 2,
                _ if METHODS.contains(&word) => 1,
                _ if is_status(word) || ["refuses", "closes", "hangs"].contains(&word) => break,
                _ if word.starts_with(|c: char| c.is_ascii_alphabetic()) => 0,
                _ => return Err(self.fault(format!("`{word}` is no backend, method, URL or status"))),
            };
            if target[part].is_some() {
                return Err(
                    self.fault(format!("`{word}` is one too many; the order is backend, method, URL"))
                );
            }
            target[part] = Some(word.to_owned());
            at += 1;
        }
        Ok((target, at))
    }

    fn origin(&self) -> Result<Action, Fault> {
        let ([backend, method, url], at) = self.target(1)?;
        let mut rule = OriginRule { backend, method, url, ..OriginRule::default() };
        let answer = self.words.get(at).map(|_| self.word(at)).transpose()?;
        let details = &self.block.details;
        rule.answer = match answer {
            Some("refuses") => Answer::Refuses,
            Some("closes") => Answer::Closes,
            Some("hangs") => Answer::Hangs,
            Some(status) => {
                let mut page =
                    Page { status: self.status(status)?, reason: self.reason(at + 1)?, ..Page::default() };
                details::of_origin(details, &mut rule, Some(&mut page))?;
                rule.answer = Answer::Page(page);
                return Ok(Action::Origin(Rc::new(rule)));
            }
            None => {
                return Err(self.fault(
                    "the answer is missing: a status, `refuses`, `closes` or `hangs`, as in `origin app /news 200`",
                ));
            }
        };
        if self.words.len() > at + 1 {
            return Err(self.fault("there are words behind the answer"));
        }
        details::of_origin(details, &mut rule, None)?;
        Ok(Action::Origin(Rc::new(rule)))
    }

    fn status(&self, word: &str) -> Result<u16, Fault> {
        let status = word.parse().ok().filter(|status| (100..1000).contains(status) && is_status(word));
        status.ok_or_else(|| self.fault(format!("`{word}` is not a status")))
    }

    /// Joins the words of a reason.
    fn reason(&self, from: usize) -> Result<String, Fault> {
        let words: Result<Vec<&str>, Fault> = (from..self.words.len()).map(|at| self.word(at)).collect();
        let reason = words?.join(" ");
        if reason.contains(['\r', '\n', '\0']) {
            return Err(self.fault("a reason is one line"));
        }
        Ok(reason)
    }

    fn request(&self) -> Result<Action, Fault> {
        let (method, url) = match &self.words[..] {
            [_, url] if !url.is_quoted => (self.word(0)?, self.word(1)?),
            _ => return Err(self.fault("a request is a method and a URL: GET /news")),
        };
        if !method.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
            return Err(self.fault(format!("`{method}` is not a method")));
        }
        let mut request = ClientRequest {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: Vec::new(),
            body: None,
            from: IpAddr::V4(Ipv4Addr::LOCALHOST),
            clients: 1,
        };
        details::of_request(&self.block.details, &mut request)?;
        Ok(Action::Request(Rc::new(request)))
    }

    fn expect(&self) -> Result<Action, Fault> {
        let second = self.words.get(1).map(|_| self.word(1)).transpose()?;
        match (second, self.words.len()) {
            (Some("fetch"), _) => self.expect_fetch(),
            (Some("no"), 3..) if self.word(2)?.starts_with("fetch") => self.count(0),
            (Some(number), 3..) if self.word(2)?.starts_with("fetch") => {
                let number = number.parse().map_err(|_| self.fault(format!("`{number}` is not a number")))?;
                self.count(number)
            }
            _ => self.expect_response(),
        }
    }

    /// Parses what follows `expect N fetches`.
    fn count(&self, number: usize) -> Result<Action, Fault> {
        if let Some(detail) = self.block.details.first() {
            return Err(Fault::new(
                detail.number,
                "a number of fetches has no details; write `expect fetch`",
            ));
        }
        let in_all = match self.words.len() {
            3 => false,
            5 if self.word(3)? == "in" && self.word(4)? == "all" => true,
            _ => return Err(self.fault("write `expect 2 fetches`, or `expect 2 fetches in all`")),
        };
        Ok(Action::ExpectCount(Count { number, in_all }))
    }

    fn expect_fetch(&self) -> Result<Action, Fault> {
        let ([backend, method, url], at) = self.target(2)?;
        if at < self.words.len() {
            return Err(self.fault(
                "write the backend, the method and the URL of the request: expect fetch app GET /news",
            ));
        }
        let checks = details::of_expectation(&self.block.details, false)?;
        Ok(Action::ExpectFetch(Box::new(ExpectedFetch { backend, method, url, checks })))
    }

    fn expect_response(&self) -> Result<Action, Fault> {
        let mut expected = ExpectedResponse::default();
        for at in 1..self.words.len() {
            let word = self.word(at)?;
            if is_status(word) {
                expected.status = Some(self.status(word)?);
                expected.reason = Some(self.reason(at + 1)?).filter(|reason| !reason.is_empty());
                break;
            }
            if !OUTCOMES.contains(&word) {
                let hint =
                    suggest(word, &OUTCOMES).unwrap_or_else(|| format!("known are {}", OUTCOMES.join(", ")));
                return Err(self.fault(format!("there is no outcome `{word}`: {hint}")));
            }
            if expected.outcome.is_some() {
                return Err(self.fault("a request has one outcome"));
            }
            expected.outcome = Some(word.to_owned());
        }
        expected.checks = details::of_expectation(&self.block.details, true)?;
        if self.words.len() == 1 && expected.checks.is_empty() {
            return Err(self.fault("nothing is expected: write an outcome, a status, or details below"));
        }
        Ok(Action::ExpectResponse(Box::new(expected)))
    }
}

fn is_status(word: &str) -> bool {
    word.len() == 3 && word.bytes().all(|b| b.is_ascii_digit())
}
