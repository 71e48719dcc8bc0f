//! The contents of a test file.

use std::net::IpAddr;
use std::rc::Rc;

use super::condition::Condition;

/// A test file.
#[derive(Debug, Default)]
pub struct Suite {
    /// The statements before the first test. They apply to each test.
    pub setup: Vec<Step>,
    pub tests: Vec<Test>,
}

#[derive(Debug)]
pub struct Test {
    pub name: String,
    pub line: u32,
    pub steps: Vec<Step>,
}

/// A statement with its line.
#[derive(Debug)]
pub struct Step {
    pub line: u32,
    pub action: Action,
}

impl Step {
    /// Returns whether the statement is an expectation.
    pub fn expects(&self) -> bool {
        matches!(self.action, Action::ExpectResponse(_) | Action::ExpectFetch(_) | Action::ExpectCount(_))
    }
}

#[derive(Debug)]
pub enum Action {
    /// Adds a rule for the responses of origins. Later rules have precedence.
    Origin(Rc<OriginRule>),
    Request(Rc<ClientRequest>),
    /// Lets so many seconds pass.
    After(f64),
    ExpectResponse(Box<ExpectedResponse>),
    ExpectFetch(Box<ExpectedFetch>),
    ExpectCount(Count),
    Ban(String),
    Tag(String),
    Backend(String, Health),
    Param(String, String),
}

/// A response of origins, and the requests that get it.
#[derive(Debug, Default)]
pub struct OriginRule {
    pub backend: Option<String>,
    pub method: Option<String>,
    /// A URL, in which `*` stands for any text.
    pub url: Option<String>,
    pub answer: Answer,
    /// Seconds before the response.
    pub delay: f64,
    /// The number of requests after which the rule ends.
    pub times: Option<u32>,
}

#[derive(Debug, Default)]
pub enum Answer {
    Page(Page),
    /// The origin accepts no connection.
    #[default]
    Refuses,
    /// The connection ends before the response.
    Closes,
    /// No response arrives.
    Hangs,
}

/// A response of an origin.
#[derive(Debug, Default)]
pub struct Page {
    pub status: u16,
    pub reason: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The body is compressed for requests that accept gzip.
    pub is_packed: bool,
    /// The body has no length.
    pub is_chunked: bool,
    /// The connection ends within the body.
    pub is_cut: bool,
}

/// A request of a client.
#[derive(Debug)]
pub struct ClientRequest {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
    pub from: IpAddr,
    /// The number of clients that send it at the same time.
    pub clients: usize,
}

/// The expectations about the response to the last request.
#[derive(Debug, Default)]
pub struct ExpectedResponse {
    /// `hit`, `miss`, `pass`, or an outcome of `lacquer why`.
    pub outcome: Option<String>,
    pub status: Option<u16>,
    pub reason: Option<String>,
    pub checks: Vec<Check>,
}

/// The expectations about a request to an origin since the last request of a client.
#[derive(Debug, Default)]
pub struct ExpectedFetch {
    pub backend: Option<String>,
    pub method: Option<String>,
    pub url: Option<String>,
    pub checks: Vec<Check>,
}

/// The number of requests to origins.
#[derive(Debug)]
pub struct Count {
    pub number: usize,
    /// Those of the whole test count, and not only those since the last request of a client.
    pub in_all: bool,
}

#[derive(Debug)]
pub struct Check {
    pub line: u32,
    pub subject: Subject,
    pub condition: Condition,
}

#[derive(Debug)]
pub enum Subject {
    Header(String),
    Body,
    Field(Field),
}

/// A fact about a request besides its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Ttl,
    Grace,
    Keep,
    /// Whether the response was stored.
    Stored,
    Restarts,
    Retries,
    /// The name of the last backend that was asked.
    Backend,
    /// The lines that VCL has logged.
    Log,
    /// The duration in seconds.
    Took,
    /// The explanation, in sentences.
    Because,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Sick,
    Healthy,
    Auto,
}

impl Health {
    /// Returns the word of the command `backend.set_health`.
    pub fn word(self) -> &'static str {
        match self {
            Health::Sick => "sick",
            Health::Healthy => "healthy",
            Health::Auto => "auto",
        }
    }
}
