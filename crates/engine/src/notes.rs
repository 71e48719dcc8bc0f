//! Observation of a transaction: the records of its trace points and steps, and the notes about a request whose response
//! will be explained to its client.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use lacquer_params::Params;
use lacquer_params::bits::{DebugBits, FeatureBits};
use lacquer_vcl::places::{self, returns};
use lacquer_vcl::types::Method;

use crate::vcl_table::VclRef;

/// The ways in which a transaction is observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation(u8);

impl Observation {
    /// Trace points are logged.
    pub const TRACE: Observation = Observation(1);
    /// Facts are noted.
    pub const NOTES: Observation = Observation(2);
    /// Steps are logged.
    pub const STEPS: Observation = Observation(4);
    /// Spans are logged.
    pub const SPANS: Observation = Observation(8);

    /// Returns how the parameters want requests to be observed. Whether a client may see notes is decided for each.
    pub fn of_requests(params: &Params) -> Observation {
        let bit = |is_on: bool, bit: Observation| if is_on { bit.0 } else { 0 };
        Observation(
            bit(params.feature.has(FeatureBits::TRACE), Observation::TRACE)
                | bit(!params.why_header.is_empty(), Observation::NOTES)
                | bit(params.debug.has(DebugBits::REQ_STATE), Observation::STEPS)
                | bit(params.trace_follow || params.trace_rate > 0.0, Observation::SPANS),
        )
    }

    /// Returns how the fetch of a request is observed.
    #[inline]
    pub fn of_fetch(self) -> Observation {
        Observation(self.0 & (Observation::TRACE.0 | Observation::NOTES.0 | Observation::SPANS.0))
    }

    #[inline]
    pub fn has(self, other: Observation) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    pub fn set(&mut self, other: Observation, is_on: bool) {
        if is_on {
            self.0 |= other.0;
        } else {
            self.0 &= !other.0;
        }
    }

    /// Returns the value of [`lacquer_vcl_runtime::Ctx::trace`].
    #[inline]
    pub fn trace_points(self) -> u32 {
        u32::from(self.0 & (Observation::TRACE.0 | Observation::NOTES.0))
    }

    #[inline]
    pub fn is_any(self) -> bool {
        self.0 != 0
    }
}

/// Maximum number of trace points that are remembered.
const MAX_POINTS: usize = 500;

/// A trace point that VCL has passed.
struct Point {
    vcl: Rc<VclRef>,
    method: Method,
    source: usize,
    line: usize,
}

/// A statement of a VCL that decided something.
#[derive(Clone, Debug)]
pub struct Place {
    pub sub: String,
    pub is_builtin: bool,
    /// The VCL, the file without its folders, and the line.
    pub text: String,
}

/// Whether VCL has made a setting, and where.
#[derive(Clone, Debug, Default)]
pub enum ByVcl {
    #[default]
    No,
    Somewhere,
    At(Place),
}

impl From<Option<Place>> for ByVcl {
    fn from(place: Option<Place>) -> ByVcl {
        place.map_or(ByVcl::Somewhere, ByVcl::At)
    }
}

impl ByVcl {
    pub fn place(&self) -> Option<&Place> {
        if let ByVcl::At(place) = self { Some(place) } else { None }
    }

    /// Returns the setting's origin in words; `None` if VCL has not made it.
    pub fn words(&self) -> Option<String> {
        match self {
            ByVcl::No => None,
            ByVcl::Somewhere => Some("VCL".to_owned()),
            ByVcl::At(place) => Some(format!("VCL {}", place.text)),
        }
    }
}

/// Why a lookup found no object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absence {
    #[default]
    Nothing,
    Banned,
    OtherVariant,
}

/// The facts about a response and its fetch.
#[derive(Default)]
pub struct Notes {
    points: VecDeque<Point>,
    /// The subroutine of the last step.
    pub last: Option<Method>,
    /// The steps that were taken.
    pub steps: Steps,
    pub absence: Absence,
    /// The statement behind the last pass or synthetic response.
    pub decided: Option<Place>,
    /// The notes of the fetch.
    pub fetch: Option<SharedNotes>,
    /// For a fetch: the statements that have set the lifetime and forbidden the cache, if VCL has.
    pub ttl: ByVcl,
    pub uncacheable: ByVcl,
    /// For a fetch: a 304 has confirmed the stale object.
    pub is_confirmed: bool,
    /// For a fetch: the failure in words.
    pub failure: Option<String>,
}

/// The steps that a request has taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps(u8);

impl Steps {
    pub const ADMITTED: u8 = 1;
    pub const PURGED: u8 = 2;
    pub const FAILED: u8 = 4;
    pub const PASSED: u8 = 8;
    pub const WAITED: u8 = 16;
    pub const SYNTH: u8 = 32;
    pub const STALE: u8 = 64;

    pub fn add(&mut self, step: u8) {
        self.0 |= step;
    }

    pub fn has(self, step: u8) -> bool {
        self.0 & step != 0
    }
}

/// Notes that a fetch writes and its request reads.
#[derive(Clone, Default)]
pub struct SharedNotes(pub Rc<RefCell<Notes>>);

impl Notes {
    /// Remembers a trace point: the text of its log record.
    pub fn pass_point(&mut self, vcl: &Rc<VclRef>, method: Method, text: &str) {
        let Some((source, line)) = places::trace_point(text) else { return };
        if self.points.len() >= MAX_POINTS {
            self.points.pop_front();
        }
        self.points.push_back(Point { vcl: vcl.clone(), method, source, line });
    }

    /// Notes why a lookup found no object.
    pub fn miss(&mut self, was_banned: bool, has_variants: bool) {
        self.absence = match (was_banned, has_variants) {
            (true, _) => Absence::Banned,
            (false, true) => Absence::OtherVariant,
            (false, false) => Absence::Nothing,
        };
    }

    /// Returns whether a subroutine has run.
    pub fn has_run(&self, method: Method) -> bool {
        self.points.iter().any(|point| point.method == method)
    }

    /// Finds the statement that ran last in a subroutine and that `is_it` accepts.
    pub fn place(&self, method: Method, is_it: &dyn Fn(&str) -> bool) -> Option<Place> {
        let points = self.points.iter().rev().filter(|point| point.method == method);
        points.take(MAX_POINTS).find_map(|point| point.statement(is_it))
    }

    /// Finds the statement by which a subroutine has returned an action.
    pub fn returned(&self, method: Method, action: &str) -> Option<Place> {
        self.place(method, &|line| returns(line, action))
    }
}

impl Point {
    fn statement(&self, is_it: &dyn Fn(&str) -> bool) -> Option<Place> {
        let instance = self.vcl.loaded.instance();
        let source = instance.program.sources.get(self.source)?;
        let found = places::statement(&places::lines(source), self.line, is_it)?;
        let file = source.name.rsplit('/').next().unwrap_or_default();
        Some(Place {
            is_builtin: source.builtin,
            text: format!("{} {file}:{} {}", instance.name, found.line, found.sub),
            sub: found.sub,
        })
    }
}
