//! The parts of a client's request. Only the steps of this folder see their fields.

use std::rc::Rc;

use lacquer_cache::ObjRef;
use lacquer_deliver::EsiInclude;
use lacquer_http::{Mark, Message, SessClose, Text};
use lacquer_vcl_runtime::BackendId;
use lacquer_vcl_runtime::instance::PrivateMap;
use sha2::Sha256;

use super::top::Top;
use crate::account::Account;
use crate::addresses::ActiveRequest;
use crate::admission::Permit;
use crate::client_transport::ClientTransport;
use crate::client_sink::ClientSink;
use crate::req_body::ReqBody;
use crate::vcl_table::VclRef;

/// The request and VCL's settings of it.
pub struct Request {
    /// The request as VCL sees and changes it.
    pub(super) http: Message,
    /// The request as it came in, for restarts.
    pub(super) original: Message,
    pub(super) body: ReqBody,
    /// The time when its head was complete.
    pub(super) received: f64,
    pub(super) restarts: u32,
    pub(super) expects: Expects,
    pub(super) identity: Text,
    /// The filters of its body.
    pub(super) filters: Text,
    pub(super) rules: LookupRules,
    pub(super) backend_hint: BackendId,
    pub(super) storage: u32,
    /// The workspace before VCL changed the request.
    pub(super) snapshot: Mark,
}

/// The client waits for 100 (Continue) before it sends the body.
#[derive(Default)]
pub struct Expects {
    pub(super) is_waiting: bool,
    /// VCL wants it sent only when the body is read.
    pub(super) is_late: bool,
}

/// Settings of VCL about the objects that a look-up may find. Times are in seconds; a negative one sets no limit.
pub struct LookupRules {
    pub(super) ttl: f64,
    pub(super) grace: f64,
    pub(super) max_age: f64,
    pub(super) always_miss: bool,
    pub(super) ignore_busy: bool,
    pub(super) ignore_vary: bool,
}

impl Default for LookupRules {
    fn default() -> LookupRules {
        LookupRules {
            ttl: -1.0,
            grace: -1.0,
            max_age: -1.0,
            always_miss: false,
            ignore_busy: false,
            ignore_vary: false,
        }
    }
}

/// The response and VCL's settings of it.
pub struct Response {
    pub(super) http: Message,
    /// The time when `vcl_deliver` or `vcl_synth` was entered.
    pub(super) entered: f64,
    /// The filters of its body, if VCL chose them.
    pub(super) filters: Text,
    pub(super) can_esi: bool,
    pub(super) is_streaming: bool,
    /// Status and reason for `vcl_synth`.
    pub(crate) status: u16,
    pub(crate) reason: Text,
    /// The body that VCL makes in `vcl_synth`.
    pub(crate) body: Vec<u8>,
}

/// The client, and what its connection has to know of the request.
pub struct Client {
    pub(super) tx: ClientTransport,
    /// A buffer for assembling output.
    pub(super) out: Vec<u8>,
    pub(super) account: Account,
    /// The reason for which the connection ends with this request, if it does.
    pub(super) close: Option<SessClose>,
    pub(super) is_piped: bool,
    /// The client has reset the stream, and VCL was interrupted.
    pub(super) is_reset: bool,
    /// The permit to wait, while the request has it. A fetch takes it along.
    pub(super) permit: Option<Permit>,
    /// Counts this request while requests of an address are limited.
    pub(super) active_request: Option<ActiveRequest>,
}

/// The key under which the request is looked up.
#[derive(Default)]
pub struct Key {
    pub(super) digest: [u8; 32],
    /// Present while `vcl_hash` runs.
    pub(super) hasher: Option<Sha256>,
}

/// What the look-up found.
#[derive(Default)]
pub struct Found {
    /// The object under the running subroutine, for `obj.*`.
    pub(super) object: Option<ObjRef>,
    pub(super) is_hit: bool,
    pub(super) is_hitmiss: bool,
    pub(super) is_hitpass: bool,
}

/// The place of the request among those that include each other.
#[derive(Default)]
pub struct Inclusion {
    /// 0 is the client's own request.
    pub(super) level: u32,
    /// The destination of an included response.
    pub(super) into: Option<Box<EsiInclude<ClientSink>>>,
    /// The client's own request, for those that it includes.
    pub(super) top: Option<Rc<Top>>,
    pub(super) top_privates: PrivateMap,
}

/// The VCL programs of a request that `return (vcl(label))` gave to another.
#[derive(Default)]
pub struct Programs {
    pub(super) next: Option<Rc<VclRef>>,
    /// The program before, which included requests begin with.
    pub(super) first: Option<Rc<VclRef>>,
    pub(super) label: Option<String>,
}
