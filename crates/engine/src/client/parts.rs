//! The parts of a client's request. Most of their fields are visible only to the steps in this folder.

use std::rc::Rc;

use lacquer_cache::ObjRef;
use lacquer_deliver::EsiInclude;
use lacquer_flow::rfc9111::status::Forward;
use lacquer_http::{Mark, Message, SessClose, Text};
use lacquer_vcl_runtime::BackendId;
use lacquer_vcl_runtime::instance::PrivateMap;

use super::top::Top;
use crate::account::Account;
use crate::addresses::ActiveRequest;
use crate::admission::Permit;
use crate::client_sink::ClientSink;
use crate::client_transport::ClientTransport;
use crate::req_body::ReqBody;
use crate::trailers::Trailers;
use crate::vcl_table::VclRef;

/// The request, and the settings that VCL made for it.
pub struct Request {
    /// The request as VCL sees and changes it.
    pub(super) http: Message,
    /// The request as it was received, for restarts and rollbacks.
    pub(super) original: Message,
    pub(super) body: ReqBody,
    /// The time when its head was complete.
    pub(super) received: f64,
    pub(super) restarts: u32,
    pub(super) expects: Expects,
    pub(super) identity: Text,
    /// The value of `req.filters`.
    pub(super) filters: Text,
    pub(super) rules: LookupRules,
    pub(super) backend_hint: BackendId,
    pub(super) storage: u32,
    /// The state of the workspace before VCL changed the request.
    pub(super) snapshot: Mark,
}

/// The state of `Expect: 100-continue`.
#[derive(Default)]
pub struct Expects {
    /// The client waits for 100 (Continue) before it sends the body.
    pub(super) is_waiting: bool,
    /// VCL has postponed the 100 response until the body is read.
    pub(super) is_late: bool,
}

/// VCL's settings for the lookup. Times are in seconds; a negative time sets no limit.
pub struct LookupRules {
    pub(super) ttl: f64,
    pub(super) grace: f64,
    pub(super) always_miss: bool,
    pub(super) ignore_busy: bool,
    pub(super) ignore_vary: bool,
}

impl Default for LookupRules {
    fn default() -> LookupRules {
        LookupRules { ttl: -1.0, grace: -1.0, always_miss: false, ignore_busy: false, ignore_vary: false }
    }
}

/// The response, and the settings that VCL made for it.
pub struct Response {
    pub(super) http: Message,
    /// The time when `vcl_deliver` or `vcl_synth` was entered.
    pub(super) entered: f64,
    /// The value of `resp.filters`, if VCL has set it.
    pub(super) filters: Text,
    pub(super) can_esi: bool,
    pub(super) is_streaming: bool,
    /// The status and reason for `vcl_synth`.
    pub(crate) status: u16,
    pub(crate) reason: Text,
    /// The body that VCL sets in `vcl_synth`.
    pub(crate) body: Vec<u8>,
    /// The trailers that follow the body of a passed response.
    pub(crate) trailers: Option<Rc<Trailers>>,
}

/// The client, and the request's effects on its connection.
pub struct Client {
    pub(super) tx: ClientTransport,
    pub(super) account: Account,
    /// The reason why the connection closes after this request, if it does.
    pub(super) close: Option<SessClose>,
    pub(super) is_piped: bool,
    /// The request was an extended CONNECT (RFC 8441, RFC 9220): a success is the beginning of a tunnel.
    pub(super) is_extended: bool,
    /// The request is early data (RFC 8470), and was marked as such.
    pub(super) is_early: bool,
    /// The client has reset the stream, and VCL was interrupted.
    pub(super) is_reset: bool,
    /// The permit to wait, if the request has acquired one. A fetch takes it over.
    pub(super) permit: Option<Permit>,
    /// Counts this request against its client address, if `client_max_requests` is set.
    pub(super) active_request: Option<ActiveRequest>,
}

/// The result of the lookup.
#[derive(Default)]
pub struct Found {
    /// The object that `obj.*` refers to in the running subroutine.
    pub(super) object: Option<ObjRef>,
    pub(super) is_hit: bool,
    pub(super) is_hitmiss: bool,
    pub(super) is_hitpass: bool,
    /// The reason why the request is forwarded, for `Cache-Status`.
    pub(super) forward: Forward,
}

/// The position of the request in a tree of ESI includes.
#[derive(Default)]
pub struct Inclusion {
    /// The depth of the include; 0 for the client's own request.
    pub(super) level: u32,
    /// The include that receives the response; `None` for the client's own request.
    pub(super) into: Option<Box<EsiInclude<ClientSink>>>,
    /// The client's own request, as its included requests see it.
    pub(super) top: Option<Rc<Top>>,
    pub(super) top_privates: PrivateMap,
}

/// The VCL programs of a request that `return (vcl(label))` passed to another program.
#[derive(Default)]
pub struct Programs {
    pub(super) next: Option<Rc<VclRef>>,
    /// The program that the request started with. Included requests start with it too.
    pub(super) first: Option<Rc<VclRef>>,
    pub(super) label: Option<String>,
}
