//! The requests in the log, one line for each that has ended.

use lacquer_shm::Tag;

use crate::directory::Directory;
use crate::fault::Fault;
use crate::follow::{Follower, Sink};
use crate::log_line::LogLine;
use crate::parts::{self, Parts};
use crate::ring::Record;
use crate::transaction::{Grouping, Transaction, value_of};

/// The records of requests that are read, besides those that every line needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    tags: Vec<Tag>,
    /// The names of headers, and the tags of their records.
    headers: Vec<(Tag, Tag, String)>,
}

impl Needs {
    pub fn add_tag(&mut self, tag: Tag) {
        self.tags.push(tag);
    }

    /// Adds the records of a header, by which it was set or removed.
    pub fn add_header(&mut self, (set, unset): (Tag, Tag), name: &str) {
        self.headers.push((set, unset, name.to_owned()));
    }

    #[inline]
    pub fn has(&self, record: &Record<'_>) -> bool {
        let is_header = |(set, unset, name): &(Tag, Tag, String)| {
            (record.tag == *set || record.tag == *unset) && value_of(record.text, name).is_some()
        };
        parts::is_needed(record) || self.tags.contains(&record.tag) || self.headers.iter().any(is_header)
    }
}

/// A reader of requests, which follows the daemon from one worker to the next.
#[derive(Debug)]
pub struct RequestLog {
    follower: Follower,
    /// Transactions that have not ended.
    grouping: Grouping,
    needs: Needs,
    missed: u64,
    restarts: u64,
}

struct Requests<'a> {
    grouping: &'a mut Grouping,
    needs: &'a Needs,
    missed: &'a mut u64,
    restarts: &'a mut u64,
    each: &'a mut dyn FnMut(&Parts<'_>, &Transaction),
}

impl Sink for Requests<'_> {
    #[inline]
    fn record(&mut self, record: Record<'_>) {
        if !self.needs.has(&record) {
            return;
        }
        let Some(ended) = self.grouping.add(&record) else { return };
        if let Some(parts) = Parts::of(ended) {
            (self.each)(&parts, ended);
        }
    }

    fn gap(&mut self, overruns: u64) {
        *self.missed += overruns;
        *self.restarts += u64::from(overruns == 0);
        // Records of requests that have not ended are missing, or those of another worker follow.
        *self.grouping = Grouping::default();
    }
}

impl RequestLog {
    /// Opens the log at its oldest record.
    pub fn open(directory: &Directory, needs: Needs) -> Result<RequestLog, Fault> {
        let follower = Follower::at_start(directory.clone())?;
        Ok(RequestLog { follower, grouping: Grouping::default(), needs, missed: 0, restarts: 0 })
    }

    /// Reads the requests that have ended since the last call. Fails while the daemon does not run; later calls read the log
    /// of the next one in its working directory from its beginning.
    pub fn read(&mut self, each: &mut dyn FnMut(LogLine)) -> Result<(), Fault> {
        self.read_with(&mut |parts, records| each(LogLine::of_parts(records.vxid, parts)))
    }

    /// Reads like [`RequestLog::read`], with the records of each request.
    pub fn read_with(&mut self, each: &mut dyn FnMut(&Parts<'_>, &Transaction)) -> Result<(), Fault> {
        let RequestLog { follower, grouping, needs, missed, restarts } = self;
        let mut requests = Requests { grouping, needs, missed, restarts, each };
        follower.read(None, &mut requests).map(drop)
    }

    /// Returns how often the log of another worker has begun.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Returns how often records were overwritten before they were read.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}
