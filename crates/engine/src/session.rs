//! The part of a session that its requests use: the ends of the client's connection, and settings that VCL may
//! change.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use lacquer_http::proxy_protocol::find_tlv;
use lacquer_http::{SessClose, Workspace};
use lacquer_net::proxy_out::{self, Extensions};
use lacquer_net::{HttpVersion, Listener, Negotiated, Side, Stream, TlsFacts};
use lacquer_params::Params;
use lacquer_shm::vsc::LocalMain;
use lacquer_shm::{Log, Tag, Vxid};

use crate::addresses::{ActiveRequest, AddressTable, AddressUsage};
use crate::pending_handshake::PendingHandshake;

/// A timeout of a session that VCL may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    Idle,
    Linger,
    Send,
    IdleSend,
}

impl Timeout {
    #[inline]
    fn parameter(self, params: &Params) -> f64 {
        match self {
            Timeout::Idle => params.timeout_idle,
            Timeout::Linger => params.timeout_linger,
            Timeout::Send => params.send_timeout,
            Timeout::IdleSend => params.idle_send_timeout,
        }
    }
}

/// The addresses of a connection.
pub struct Ends {
    /// The addresses of the socket.
    pub remote: Side,
    pub local: Side,
    /// The addresses from the PROXY header, else those of the socket.
    pub client: Side,
    pub server: Side,
}

pub struct Sess {
    vxid: Vxid,
    listener: Arc<Listener>,
    ends: Ends,
    /// The facts that the connection's transport has negotiated, once it has passed the stages of its listener.
    negotiated: Negotiated,
    /// The extensions of a PROXY header, version 2.
    proxy_tlvs: Vec<u8>,
    /// The uid and gid of the peer of a UNIX socket.
    credentials: Option<(u32, u32)>,
    opened: f64,
    fd: i32,
    /// The timeouts that VCL has set, in the order of [`Timeout`].
    timeouts: [Cell<Option<f64>>; 4],
    /// The session's use of its client address's limits.
    address: AddressUsage,
    /// A stand-in for Varnish's session workspace, created when first used.
    workspace: RefCell<Option<Workspace>>,
    handshake: PendingHandshake,
}

impl Sess {
    pub fn new(vxid: u64, listener: Arc<Listener>, stream: &Stream, opened: f64) -> Sess {
        let remote = stream.peer_addr().map_or_else(Side::none, Side::of);
        let local = stream.local_addr().map_or_else(Side::none, Side::of);
        let credentials =
            listener.is_unix().then(|| lacquer_system::peer_credentials(stream.as_fd())).flatten();
        let sess = Sess::between(vxid, listener, (remote, local), stream.raw_fd(), opened);
        Sess { credentials, ..sess }
    }

    /// Creates a session between two addresses. `fd` is for the log.
    pub fn between(
        vxid: u64,
        listener: Arc<Listener>,
        (remote, local): (Side, Side),
        fd: i32,
        opened: f64,
    ) -> Sess {
        Sess {
            vxid: Vxid::client(vxid),
            listener,
            ends: Ends { client: remote.clone(), server: local.clone(), remote, local },
            negotiated: Negotiated::default(),
            proxy_tlvs: Vec::new(),
            credentials: None,
            opened,
            fd,
            timeouts: [const { Cell::new(None) }; 4],
            address: AddressUsage::default(),
            workspace: RefCell::default(),
            handshake: PendingHandshake::default(),
        }
    }

    /// Replaces the addresses of the client and of the server with those from a PROXY header.
    pub fn use_proxied_ends(&mut self, client: Side, server: Side) {
        self.ends.client = client;
        self.ends.server = server;
    }

    /// Stores the extensions of a PROXY header.
    pub fn use_proxy_tlvs(&mut self, tlvs: &[u8]) {
        self.proxy_tlvs = tlvs.to_vec();
    }

    /// Records the result of the transport's negotiation.
    pub fn settle(&mut self, negotiated: Negotiated) {
        self.negotiated = negotiated;
    }

    /// Returns whether the client's requests arrive before the end of the handshake.
    #[inline]
    pub fn handshake(&self) -> &PendingHandshake {
        &self.handshake
    }

    #[inline]
    pub fn vxid(&self) -> Vxid {
        self.vxid
    }

    #[inline]
    pub fn listener(&self) -> &Arc<Listener> {
        &self.listener
    }

    #[inline]
    pub fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Returns the client's address as text.
    #[inline]
    pub fn client_ip(&self) -> &str {
        &self.ends.client.ip
    }

    /// Returns the time when the connection was accepted.
    pub fn opened(&self) -> f64 {
        self.opened
    }

    /// Returns the only protocol that the connection may use; `None` if the first bytes decide.
    #[inline]
    pub fn negotiated_protocol(&self) -> Option<HttpVersion> {
        self.negotiated.protocol
    }

    /// Returns the facts about TLS, if the client's connection uses it.
    #[inline]
    pub fn tls(&self) -> Option<&TlsFacts> {
        self.negotiated.tls.as_deref()
    }

    /// Returns an extension of the PROXY header by its type.
    pub fn proxy_tlv(&self, kind: u8) -> Option<&[u8]> {
        find_tlv(&self.proxy_tlvs, kind)
    }

    /// Appends the PROXY header that tells an origin about this session's client.
    pub fn write_proxy_header(&self, version: u32, header: &mut Vec<u8>) {
        let extensions = match self.tls() {
            Some(facts) => Extensions::Session(facts),
            None => Extensions::Received(&self.proxy_tlvs),
        };
        proxy_out::write(version, &self.ends.client, &self.ends.server, &extensions, header);
    }

    /// Returns the uid and gid of the peer of a UNIX socket.
    pub fn credentials(&self) -> Option<(u32, u32)> {
        self.credentials
    }

    // The log.

    /// Logs the beginning of the session. `protocol` is the one with which its connection begins.
    pub fn log_open(&self, log: &Log, protocol: &str) {
        let vxid = self.vxid;
        log.write_fmt(Tag::Begin, vxid, format_args!("sess 0 {protocol}"));
        log.write_fmt(
            Tag::SessOpen,
            vxid,
            format_args!(
                "{} {} {} {} {} {:.6} {}",
                self.ends.remote.ip,
                self.ends.remote.port,
                self.listener.name(),
                self.ends.local.ip,
                self.ends.local.port,
                self.opened,
                self.fd
            ),
        );
    }

    pub fn log_close(&self, log: &Log, reason: SessClose, now: f64) {
        let vxid = self.vxid;
        let lasted = (now - self.opened).max(0.0);
        log.write_fmt(Tag::SessClose, vxid, format_args!("{} {lasted:.3}", reason.name()));
        log.write(Tag::End, vxid, b"");
    }

    /// Logs the timeout that ends the session of a slow client.
    #[cold]
    pub fn log_late(&self, log: &Log, what: &str) {
        log.write_fmt(Tag::SessError, self.vxid, format_args!("Hit timeout_idle in a {what}"));
    }

    // The limits of the client's address.

    /// Counts the connection. Returns false if its address has reached `client_max_connections`.
    pub fn count_connection(&self, table: &Arc<AddressTable>, params: &Params) -> bool {
        self.address.connect(table, self.ends.client.addr.ip(), params)
    }

    /// Counts a request, if requests are limited. Fails if its address has reached `client_max_requests`.
    pub(crate) fn begin_request(
        &self,
        table: &Arc<AddressTable>,
        params: &Params,
    ) -> Result<Option<ActiveRequest>, ()> {
        self.address.begin_request(table, self.ends.client.addr.ip(), params)
    }

    /// Charges a reset of a stream. Returns false if the budget of the address is spent.
    pub fn charge_reset(&self, table: &Arc<AddressTable>, params: &Params) -> bool {
        self.address.charge_reset(table, self.ends.client.addr.ip(), params)
    }

    /// Returns the session's share in the limits of its client's address.
    pub fn address(&self) -> &AddressUsage {
        &self.address
    }

    // Timeouts.

    /// Returns a timeout in seconds: the value that VCL has set, else the parameter's.
    #[inline]
    pub fn timeout(&self, which: Timeout, params: &Params) -> f64 {
        self.timeouts[which as usize].get().unwrap_or_else(|| which.parameter(params))
    }

    /// Sets a timeout; `None` restores the parameter's value.
    pub fn set_timeout(&self, which: Timeout, seconds: Option<f64>) {
        self.timeouts[which as usize].set(seconds);
    }

    /// Returns the seconds for which the client may take no byte of a response.
    #[inline]
    pub fn send_idle_limit(&self, params: &Params) -> f64 {
        self.timeout(Timeout::IdleSend, params)
    }

    /// Returns the seconds for which the connection may wait for a request.
    #[inline]
    pub fn idle_limit(&self, params: &Params) -> f64 {
        self.timeout(Timeout::Idle, params)
    }

    // The workspace.

    /// Runs `work` on the stand-in for the session's workspace; `None` until it is first used.
    pub fn with_workspace<T>(&self, work: impl FnOnce(&mut Option<Workspace>) -> T) -> T {
        work(&mut self.workspace.borrow_mut())
    }

    pub fn workspace_overflowed(&self) -> bool {
        self.workspace.borrow().as_ref().is_some_and(Workspace::overflowed)
    }
}

/// Counts the end of a session by its reason.
pub fn count_close(c: &LocalMain, reason: SessClose) {
    let counter = match reason {
        SessClose::RemClose => &c.sc_rem_close,
        SessClose::ReqClose => &c.sc_req_close,
        SessClose::ReqHttp10 => &c.sc_req_http10,
        SessClose::RxBad => &c.sc_rx_bad,
        SessClose::RxBody => &c.sc_rx_body,
        SessClose::RxJunk => &c.sc_rx_junk,
        SessClose::RxOverflow => &c.sc_rx_overflow,
        SessClose::RxTimeout => &c.sc_rx_timeout,
        SessClose::RxCloseIdle => &c.sc_rx_close_idle,
        SessClose::TxPipe => &c.sc_tx_pipe,
        SessClose::TxError => &c.sc_tx_error,
        SessClose::TxEof => &c.sc_tx_eof,
        SessClose::RespClose => &c.sc_resp_close,
        SessClose::Overload => &c.sc_overload,
        SessClose::PipeOverflow => &c.sc_pipe_overflow,
        SessClose::RangeShort => &c.sc_range_short,
        SessClose::ReqHttp20 => &c.sc_req_http20,
        SessClose::VclFailure => &c.sc_vcl_failure,
        SessClose::RapidReset => &c.sc_rapid_reset,
        SessClose::Bankrupt => &c.sc_bankrupt,
    };
    counter.add(1);
    if reason.is_error() {
        c.sess_closed_err.add(1);
    }
}
