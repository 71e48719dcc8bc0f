//! Runs a test: carries out its steps, then compares its expectations with the responses, the requests to origins and the
//! log.

use std::rc::Rc;

use lacquer_inspect::why::Ban;
use lacquer_sources::clock;

use crate::claim::{Asked, Claim};
use crate::evidence::{Evidence, Records};
use crate::format::{Action, ClientRequest, Step, Suite, Test};
use crate::judge::{Judge, Mismatch};
use crate::panics;
use crate::world::World;

/// The number of requests after which the log is read, so that it does not overwrite records.
const READ_EVERY: usize = 32;

/// The outcome of a test.
#[derive(Debug, Default)]
pub struct Outcome {
    pub failures: Vec<Mismatch>,
    /// The number of requests of clients.
    pub requests: usize,
}

/// The progress of a test.
#[derive(Default)]
struct Course<'t> {
    asked: Vec<Asked>,
    claims: Vec<Claim<'t>>,
    records: Records,
    requests: usize,
    /// The number of requests when the log was read.
    read_at: usize,
    bans: Vec<Ban>,
    /// The parameters that the test has set.
    params: Vec<(String, String)>,
}

/// Runs a test of a file.
pub async fn run(world: &mut World, suite: &Suite, test: &Test) -> Outcome {
    let mut course = Course::default();
    let mut failures = Vec::new();
    match world.begin_test(&[]).await {
        Ok(()) => {
            for step in suite.setup.iter().chain(&test.steps) {
                if let Err(why) = course.take(world, step).await {
                    failures.push(Mismatch::fault(step.line, why));
                    break;
                }
            }
        }
        Err(why) => failures.push(Mismatch::fault(test.line, why)),
    }
    world.settle().await;
    if let Err(why) = course.read_log(world) {
        failures.push(Mismatch::fault(test.line, why));
    }
    let evidence =
        Evidence::new(world.sources(), std::mem::take(&mut course.records), std::mem::take(&mut course.bans));
    let fetched = world.origins().borrow().fetched().to_vec();
    let mut judge = Judge::new(&course.asked, &fetched, evidence);
    for claim in &course.claims {
        failures.extend(judge.check(claim));
    }
    failures.extend(panics::take().into_iter().map(|panic| Mismatch::fault(test.line, panic)));
    failures.sort_by_key(|failure| failure.line);
    Outcome { failures, requests: course.requests }
}

impl<'t> Course<'t> {
    async fn take(&mut self, world: &mut World, step: &'t Step) -> Result<(), String> {
        match &step.action {
            Action::Origin(rule) => world.origins().borrow_mut().add(rule.clone()),
            Action::After(seconds) => world.pass_time(*seconds).await,
            Action::Ban(expression) => self.ban(world, expression).await?,
            Action::Tag(tag) => world.command(&["tag.purge", tag]).map(drop)?,
            Action::Backend(name, health) => world.set_health(name, *health)?,
            Action::Param(name, value) => {
                self.params.push((name.clone(), value.clone()));
                world.set_params(&self.params)?;
            }
            Action::Request(request) => self.ask(world, request).await?,
            Action::ExpectResponse(_) | Action::ExpectFetch(_) | Action::ExpectCount(_) => {
                let fetches_until = world.origins().borrow().fetched().len();
                let asked = self.asked.len().saturating_sub(1);
                self.claims.push(Claim { step, asked, fetches_until });
            }
        }
        Ok(())
    }

    async fn ban(&mut self, world: &World, expression: &str) -> Result<(), String> {
        let words: Vec<&str> = std::iter::once("ban").chain(expression.split_whitespace()).collect();
        world.command(&words).map_err(|why| format!("the ban is refused: {}", why.trim()))?;
        self.bans.push(Ban { at: clock::real(), expression: expression.to_owned() });
        world.settle().await;
        Ok(())
    }

    async fn ask(&mut self, world: &mut World, request: &Rc<ClientRequest>) -> Result<(), String> {
        let fetches_before = world.origins().borrow().fetched().len();
        let exchanges = world.send(request).await;
        self.requests += exchanges.len();
        if self.requests - self.read_at >= READ_EVERY {
            self.read_log(world)?;
        }
        self.asked.push(Asked { request: request.clone(), exchanges, fetches_before });
        Ok(())
    }

    fn read_log(&mut self, world: &mut World) -> Result<(), String> {
        self.read_at = self.requests;
        let records = &mut self.records;
        world.read_log(&mut |record| records.add(&record))
    }
}
