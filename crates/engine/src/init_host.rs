//! The VCL host of `vcl_init` and `vcl_fini`, which run without a request and a response.

use std::sync::Arc;

use lacquer_cache::invalidation::{Source, Ticket};
use lacquer_shm::{Tag, Vxid};
use lacquer_sources::clock;
use lacquer_vcl::types::Method;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{Host, PrivateMap, RegexLimits};

use crate::bans;
use crate::shared::Shared;
use crate::vars::params;
use crate::vxids::vxid_of;

pub struct InitHost {
    shared: Arc<Shared>,
    method: Method,
    now: f64,
    /// The workspace: pieces that keep their address until the host is dropped.
    pieces: Vec<Vec<u8>>,
    privates: PrivateMap,
    failures: String,
}

impl InitHost {
    pub fn new(shared: Arc<Shared>, method: Method) -> InitHost {
        InitHost {
            shared,
            method,
            now: clock::real(),
            pieces: Vec::new(),
            privates: PrivateMap::default(),
            failures: String::new(),
        }
    }

    /// Returns the failures that VCL reported, one per line.
    pub fn into_failures(self) -> String {
        self.failures
    }

    fn write(&self, tag: Tag, vxid: Vxid, text: &[u8]) {
        self.shared.log().write(tag, vxid, text);
    }
}

fn tag_of(number: u8) -> Option<Tag> {
    Tag::ALL.iter().copied().find(|tag| *tag as u8 == number)
}

impl Host for InitHost {
    fn method(&self) -> Method {
        self.method
    }

    fn now(&self) -> f64 {
        self.now
    }

    fn real_now(&self) -> f64 {
        clock::real()
    }

    fn alloc(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.pieces.push(vec![0; bytes]);
        self.pieces.last_mut().map(Vec::as_mut_slice)
    }

    fn copy(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        self.pieces.push(bytes.to_vec());
        self.pieces.last().map(Vec::as_slice)
    }

    fn get_int(&mut self, var: Var) -> i64 {
        params::int(&self.shared.params(), var).unwrap_or(0)
    }

    fn get_real(&mut self, var: Var) -> f64 {
        params::duration(&self.shared.params(), var).unwrap_or(0.0)
    }

    fn get_str(&mut self, var: Var) -> Option<&[u8]> {
        let text = match var {
            Var::ServerHostname => &self.shared.hostname(),
            Var::ServerIdentity => &self.shared.identity(),
            _ => return None,
        };
        Some(text.as_bytes())
    }

    fn stevedore_by_name(&mut self, name: &str) -> u32 {
        self.shared.stevedores().by_name(name).map_or(0, |index| index + 1)
    }

    fn stevedore_name(&mut self, index: u32) -> Option<&[u8]> {
        let found = index.checked_sub(1).and_then(|i| self.shared.stevedores().get(i));
        found.map(|stevedore| stevedore.name().as_bytes())
    }

    fn log(&mut self, tag: u8, text: &[u8]) {
        if let Some(tag) = tag_of(tag) {
            self.write(tag, Vxid::NONE, text);
        }
    }

    fn log_as(&mut self, vxid: u64, tag: u8, text: &[u8]) {
        if let Some(tag) = tag_of(tag) {
            self.write(tag, vxid_of(vxid), text);
        }
    }

    fn regex_limits(&self) -> RegexLimits {
        let params = self.shared.params();
        RegexLimits { matches: params.pcre2_match_limit, depth: params.pcre2_depth_limit }
    }

    fn trace(&mut self, text: &str) {
        self.write(Tag::VCL_trace, Vxid::NONE, text.as_bytes());
    }

    fn fail(&mut self, text: &str) {
        if self.method == Method::Init {
            self.failures.push_str(text);
            self.failures.push('\n');
            return;
        }
        self.write(Tag::VCL_Error, Vxid::NONE, text.as_bytes());
        self.write(Tag::VCL_Error, Vxid::NONE, b"VRT_fail() from vcl_fini{} has no effect");
    }

    fn ban(&mut self, expression: &[u8]) -> Result<(), String> {
        bans::from_vcl(&self.shared, expression, Source::Program).map(Ticket::wait)
    }

    fn task_privates(&mut self) -> &mut PrivateMap {
        &mut self.privates
    }
}
